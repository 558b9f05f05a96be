"""Every block of every page does what the page says. `--update-golden` writes what is printed."""

import codeop
import re
import sys
from pathlib import Path

import pytest

from tests.docs.snippets import ROOT, Reader, differs, docs, rewritten, snippets

NEEDS_SPARK = re.compile(r"\.start\(|anabranch (run|demo)|SparkSession|spark=")
PAGES = [docs.read(file) for file in sorted((ROOT / "docs").rglob("*.md"))]


def _readings():
    """What is read in one go: the steps of the tutorial, in order, and every other page alone."""
    tutorial = [page for page in PAGES if page.path.parent.name == "tutorial"]
    others = [[page] for page in PAGES if page not in tutorial]
    for reading in (tutorial, *others):
        found = [snippet for page in reading for snippet in snippets(page)]
        if found:
            name = str(reading[0].path.relative_to(ROOT / "docs"))
            marks = ()
            if any(NEEDS_SPARK.search(each.code) for each in found):
                marks = (pytest.mark.spark, pytest.mark.slow)
            elif any(each.kind == "command" for each in found):
                marks = (pytest.mark.slow,)
            yield pytest.param(reading, id="tutorial" if reading is tutorial else name, marks=marks)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An empty directory to read in, from which Python imports."""
    before = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    # The next page may have a file of the same name.
    for name in set(sys.modules) - before:
        file = getattr(sys.modules[name], "__file__", None)
        if file is not None and Path(file).is_relative_to(tmp_path):
            del sys.modules[name]


@pytest.mark.parametrize("reading", list(_readings()))
def test_blocks_do_what_the_page_says(reading, request, place, monkeypatch):
    if request.node.get_closest_marker("spark"):
        request.getfixturevalue("spark_context")
    reader = Reader(place)
    monkeypatch.setitem(sys.modules, "__main__", reader.module)
    update = request.config.getoption("--update-golden")
    for page in reading:
        moved = 0
        for snippet in snippets(page):
            printed = reader.does(snippet, page.path)
            different = differs(snippet, printed)
            if different and update and snippet.printed is not None:
                text, moved = rewritten(page.path.read_text(), snippet, printed, moved)
                page.path.write_text(text)
            else:
                where = f"{page.path.relative_to(ROOT)}:{snippet.line}"
                assert different is None, f"{where}: {different}"


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.path.parent.name == "tutorial"],
    ids=lambda p: p.path.stem,
)
def test_the_tutorial_can_be_pasted_into_python(page):
    """Python's prompt ends a compound statement at an empty line, and nowhere else."""
    for snippet in snippets(page):
        if snippet.kind == "python":
            typed = []
            for line in (*snippet.code.splitlines(), ""):
                typed.append(line)
                if codeop.compile_command("\n".join(typed)) is not None:
                    typed.clear()
            assert "" == "".join(typed), f"{page.path.name}:{snippet.line}"
