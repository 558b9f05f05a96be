"""Every refusal says what is wrong, at which line of the user's, and what to do: word for word."""

import inspect
import re

import pytest

import anabranch as ab
from tests.program import bad_programs

CASES = {case.__name__: case for case in bad_programs.CASES}


def refusal(case):
    with pytest.raises(ab.ProgramError) as refused:
        case()
    return refused.value


@pytest.mark.parametrize("name", CASES)
def test_the_error_names_the_line_that_is_wrong(name):
    lines, first = inspect.getsourcelines(CASES[name])
    (marked,) = [first + at for at, line in enumerate(lines) if line.rstrip().endswith("# here")]

    error = refusal(CASES[name])

    assert (bad_programs.__file__, marked) == (error.file, error.line)


def test_the_texts_are_the_ones_we_wrote(golden):
    parts = []
    for name, case in CASES.items():
        text = re.sub(r"bad_programs\.py:\d+", "bad_programs.py:LINE", str(refusal(case)))
        text = re.sub(r"(tests/program|\S*)/bad_programs", "bad_programs", text)
        parts.append(f"# {name.replace('_', ' ')}\nProgramError: {text}\n")

    golden("errors.txt", "\n".join(parts))


def test_there_are_at_least_twenty():
    assert len(CASES) >= 20
