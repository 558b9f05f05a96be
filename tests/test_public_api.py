"""The names users import, and what importing them costs."""

import subprocess
import sys

import anabranch as ab


def test_the_public_names_are_sorted_and_exist():
    assert sorted(ab.__all__) == sorted(ab.__all__, key=str) == list(ab.__all__)
    for name in ab.__all__:
        assert getattr(ab, name) is not None


def test_the_test_kit_resolves_every_name():
    for name in ab.testing.__all__:
        assert getattr(ab.testing, name) is not None


def test_an_unknown_name_is_an_attribute_error():
    assert not hasattr(ab, "Programme")


def test_importing_brings_neither_spark_nor_arrow_nor_polars():
    """Polars is loaded when the first name that needs it is used."""
    code = (
        "import sys, anabranch; "
        "print([m for m in ('pyspark', 'pyarrow', 'polars') if m in sys.modules])"
    )
    assert "[]" == _printed(code)


def test_a_program_can_be_written_without_spark_or_arrow():
    code = (
        "import sys, anabranch as ab, polars as pl\n"
        "p = ab.Program('p')\n"
        "s = p.read(ab.sources.Records([{'n': 1, 't': 1}]), event_time='t')\n"
        "s.window(ab.tumbling('1 s')).agg(n=ab.count()).write(ab.sinks.Memory('out'))\n"
        "print([m for m in ('pyspark', 'pyarrow') if m in sys.modules])"
    )
    assert "[]" == _printed(code)


def _printed(code):
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return run.stdout.strip()
