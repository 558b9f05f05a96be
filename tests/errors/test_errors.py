"""What goes wrong with inputs, environments and checkpoints is told word for word as we wrote it.

Programs that are refused when they are written are in `tests/program/bad_programs.py`.
"""

import inspect
import re
import sys

import pytest

import anabranch as ab
from tests.errors import checkpoints, environments, inputs
from tests.program import bad_programs

KINDS = {"inputs": inputs, "environments": environments, "checkpoints": checkpoints}
CASES = {
    f"{kind}: {case.__name__}": case for kind, module in KINDS.items() for case in module.CASES
}


def error_of(case, place, monkeypatch):
    place.mkdir()
    wanted = inspect.signature(case).parameters
    with monkeypatch.context() as patch, pytest.raises(ab.AnabranchError) as caught:
        case(place, patch) if len(wanted) > 1 else case(place)
    return caught.value


def settled(text, place):
    """A text in which what differs from run to run and from machine to machine has a name."""
    if place.is_symlink():
        text = text.replace(str(place.readlink()), "PLACE")
    text = text.replace(str(place), "PLACE").replace(sys.executable, "PYTHON")
    text = re.sub(r"/\S+/(anabranch-exchange-)\w+", r"\1ID", text)
    text = re.sub(r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])", "ID", text)
    text = re.sub(r"\S*tests/errors/(\w+\.py):\d+", r"\1:LINE", text)
    text = re.sub(r"(?:/[\w.+-]+)+/(\w+\.py):\d+", r"\1:LINE", text)
    text = re.sub(r"\bpid \d+", "pid PID", text)
    return re.sub(r"\bport \d+", "port PORT", text)


@pytest.mark.parametrize("kind", KINDS)
def test_the_texts_are_the_ones_we_wrote(kind, golden, tmp_path, monkeypatch):
    parts = []
    for number, case in enumerate(KINDS[kind].CASES):
        place = tmp_path / str(number)
        error = error_of(case, place, monkeypatch)
        name = case.__name__.replace("_", " ")
        parts.append(f"# {name}\n{type(error).__name__}: {settled(str(error), place)}\n")

    golden(f"errors_{kind}.txt", "\n".join(parts))


MARKED = {name: case for name, case in CASES.items() if "# here" in inspect.getsource(case)}


@pytest.mark.parametrize("name", MARKED)
def test_the_error_names_the_line_that_is_wrong(name, tmp_path, monkeypatch):
    lines, first = inspect.getsourcelines(MARKED[name])
    (marked,) = [first + at for at, line in enumerate(lines) if line.rstrip().endswith("# here")]

    error = error_of(MARKED[name], tmp_path / "0", monkeypatch)

    assert (inspect.getsourcefile(MARKED[name]), marked) == (error.file, error.line)


def test_there_are_many():
    assert len(CASES) + len(bad_programs.CASES) >= 140
