"""The test kit on a real Spark: programs against the oracle, Spark's own connectors."""

import pytest

import anabranch as ab
from anabranch.testing import assert_same_as_sequential, check_sink, check_source
from anabranch.testing import equivalence as kit
from tests.runtime.programs import PROGRAMS

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(params=["files", "shuffle"])
def _exchange(request, monkeypatch):
    monkeypatch.setenv("ANABRANCH_EXCHANGE", request.param)


def made(name):
    make, rows, schema = PROGRAMS[name]
    source = ab.sources.Records(rows(60), schema=schema, partitions=2)
    return make(source, ab.sinks.Callback(lambda rows, epoch: 1 // 0))


@pytest.mark.usefixtures("_exchange")
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_pass_through_crashes_and_changes_of_width(name, spark_context, monkeypatch):
    found, run = [], kit.Lives.run

    def noting(self):
        run(self)
        found.append(self)

    monkeypatch.setattr(kit.Lives, "run", noting)
    assert_same_as_sequential(
        made(name),
        widths=(2,),
        crash_at=[1, "after job", "after delta", "after commit", "publish"],
        rescale_at={3: 1},
        spark=spark_context,
    )

    inline, on_spark = found[:2], found[2:]
    assert [True, True, False, False] == [each._sc is None for each in (*inline, *on_spark)]
    assert [] == on_spark[0].unreached
    assert on_spark[0].shelves["out"].rows


def test_what_differs_on_spark_is_told_so(spark_context, monkeypatch):
    show = kit.Lives.run

    def losing(self):
        show(self)
        if self._sc is not None:
            self.shelves["out"].epochs.popitem()

    monkeypatch.setattr(kit.Lives, "run", losing)
    with pytest.raises(AssertionError, match=r"sink 'out' differs") as failed:
        assert_same_as_sequential(made("fraud"), widths=(1,), spark=True)

    assert "\n  run   width 1, on Spark, " in str(failed.value)
    assert ", spark=True)" in str(failed.value)


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_data_frame_as_a_source_keeps_the_contract(partitions, spark_context, tmp_path):
    from pyspark.sql import SparkSession

    session = SparkSession.builder.getOrCreate()
    df = session.range(0, 40, 1, partitions).selectExpr("id", "cast(id as string) as s")

    check_source(ab.sources.Spark(df))
    check_source(
        ab.sources.Spark(df, directory=tmp_path),
        again=lambda: ab.sources.Spark(df, directory=tmp_path),
    )


def test_a_function_of_data_frames_keeps_the_contract(spark_context, tmp_path):
    taken = []

    def take(df, epoch):
        taken.extend(row.asDict() for row in df.collect())

    def make():
        return ab.sinks.Spark(take, directory=tmp_path / "staged")

    check_sink(make(), read=lambda: taken, again=make, at_least_once=True)
    assert len(taken) > 36
