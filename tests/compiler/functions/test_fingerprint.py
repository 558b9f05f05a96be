"""What changes after the analysis is noticed; what travels unchanged is not."""

import functools
import math
import pickle
import subprocess
import sys
import types
from pathlib import Path

import pytest
from pyspark import cloudpickle

from anabranch.compiler.functions import digest
from anabranch.compiler.functions.analyse import analyse
from anabranch.compiler.functions.fingerprint import fingerprint
from tests.compiler.functions.corpus import called, stateful
from tests.compiler.functions.corpus.running import proved
from tests.compiler.functions.printed import RATES, Scale, helper, other, reads

ROOT = Path(__file__).resolve().parents[3]


def printed(call, **options):
    verdict = analyse(call, **options)
    assert verdict.proved, [reason.text for reason in verdict.reasons]
    return fingerprint(call, verdict)


def test_nothing_changed():
    assert printed(reads).check(reads) is None


def test_rebound_global(monkeypatch):
    made = printed(reads)
    monkeypatch.setitem(reads.__globals__, "LIMIT", 11)

    assert made.check(reads) == (
        "the global `LIMIT` that reads reads has changed since the function was analysed"
    )


def test_changed_table(monkeypatch):
    made = printed(reads)
    monkeypatch.setitem(RATES, "x", 2.0)

    assert "`RATES`" in made.check(reads)


def test_global_of_another_type(monkeypatch):
    made = printed(reads)
    monkeypatch.setitem(reads.__globals__, "LIMIT", 10.0)

    assert "`LIMIT`" in made.check(reads)


def test_replaced_helper(monkeypatch):
    made = printed(reads)
    monkeypatch.setitem(reads.__globals__, "helper", other)

    assert "helper" in made.check(reads)


def test_code_of_helper_replaced(monkeypatch):
    made = printed(reads)
    monkeypatch.setattr(helper, "__code__", other.__code__)

    assert "helper" in made.check(reads)


def test_default_replaced(monkeypatch):
    made = printed(reads)
    monkeypatch.setattr(reads, "__defaults__", (3,))

    assert "default of `factor`" in made.check(reads)


def test_shadowed_builtin(monkeypatch):
    def counts(r):
        return {**r, "n": len(r["tags"])}

    made = printed(counts)
    monkeypatch.setitem(counts.__globals__, "len", lambda x: 0)

    assert "`len`" in made.check(counts)


def test_patched_library(monkeypatch):
    made = printed(reads)
    monkeypatch.setattr(math, "floor", lambda x: 0)

    assert "`math.floor`" in made.check(reads)


def test_closure_cell_changed():
    factor = 2

    def scaled(r):
        return {**r, "n": r["n"] * factor}

    made = printed(scaled)
    scaled.__closure__[0].cell_contents = 3

    assert made.check(scaled) == (
        "`factor`, a variable around scaled has changed since the function was analysed"
    )


def test_attribute_of_object_changed():
    scale = Scale(2)
    made = printed(scale)
    scale.unused.append(1)
    assert made.check(scale) is None

    scale.factor = 3

    assert made.check(scale) is not None


def test_attribute_of_class_changed(monkeypatch):
    scale = Scale(2)
    made = printed(scale)
    monkeypatch.setattr(Scale, "unit", "usd")

    assert made.check(scale) is not None


def test_method_replaced(monkeypatch):
    scale = Scale(2)
    made = printed(scale)
    monkeypatch.setattr(Scale, "scaled", lambda self, n: 0)

    assert made.check(scale) is not None


def test_method_put_over_a_class_attribute():
    scale = Scale(2)
    made = printed(scale)
    scale.scaled = lambda n: 0

    assert made.check(scale) is not None


def test_special_method_added(monkeypatch):
    scale = Scale(2)
    made = printed(scale)
    monkeypatch.setattr(Scale, "__getattribute__", object.__getattribute__, raising=False)
    monkeypatch.setattr(Scale, "__getattr__", lambda self, name: 0, raising=False)

    assert made.check(scale) is not None


def test_partial_with_other_arguments():
    made = printed(functools.partial(reads, factor=3))

    assert made.check(functools.partial(reads, factor=3)) is None
    assert made.check(functools.partial(reads, factor=4)) is not None


def test_another_function_is_another():
    assert printed(reads).check(helper) is not None


def test_lambdas_in_a_loop_are_bound_late():
    made = [lambda r: {**r, "n": n} for n in range(3)]  # noqa: B023

    assert printed(made[0]).check(made[0]) is None
    assert printed(made[0]).check(made[1]) is None  # both read the last n


def test_private_globals_do_not_matter():
    home = dict(reads.__globals__, unrelated=[])
    copied = types.FunctionType(reads.__code__, home, "reads", reads.__defaults__)

    assert printed(reads).check(copied) is None


def test_it_is_the_same_in_another_process_by_value_and_by_reference(tmp_path):
    cloudpickle.register_pickle_by_value(called)
    try:
        by_value = [
            (cloudpickle.dumps(case.call), printed(case.call, takes_state=case.state))
            for case in proved()
            if _module(case.call) == called.__name__
        ]
    finally:
        cloudpickle.unregister_pickle_by_value(called)
    by_reference = [
        (pickle.dumps(case.call), printed(case.call, takes_state=case.state))
        for case in proved()
        if _module(case.call) == stateful.__name__
    ]
    file = tmp_path / "functions"
    file.write_bytes(pickle.dumps([*by_value, *by_reference]))
    code = (
        "import pickle, sys\n"
        "pairs = pickle.load(open(sys.argv[1], 'rb'))\n"
        "print([m for call, made in pairs if (m := made.check(pickle.loads(call)))], len(pairs))\n"
    )
    environment = {"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}", "PYTHONHASHSEED": "99"}

    done = subprocess.run(
        [sys.executable, "-c", code, str(file)],
        env=environment, cwd=tmp_path, capture_output=True, check=False, text=True,
    )  # fmt: skip

    assert len(by_value) >= 50
    assert f"[] {len(by_value) + len(by_reference)}" == done.stdout.strip(), done.stderr


def _module(call):
    return getattr(call, "__module__", type(call).__module__)


def test_digest_does_not_depend_on_the_line():
    one = compile("lambda x: x in {1, 2}", "a", "eval").co_consts[0]
    two = compile("\n\nlambda x: x in {2, 1}", "b", "eval").co_consts[0]

    assert digest.code_digest(one) == digest.code_digest(two)


@pytest.mark.parametrize("text", ["lambda x: x + 1.0", "lambda x: x - 1", "lambda y: y + 1"])
def test_digest_tells_code_apart(text):
    one = compile("lambda x: x + 1", "a", "eval").co_consts[0]

    assert digest.code_digest(one) != digest.code_digest(compile(text, "a", "eval").co_consts[0])
