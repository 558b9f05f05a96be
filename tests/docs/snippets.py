"""Runs the blocks of a page, in order, as a reader would.

    ```python    is run; blocks of a page share their names and a temporary directory
    ```python    with `# name.py` as its first line is saved under this name, and not run
    ```text      right behind a block that is run: what it prints
    ```console   lines that begin with `$ ` are run by the shell; what follows each is what it prints

In what is printed `...` stands for anything. Blocks of other kinds are only shown.
"""

import contextlib
import doctest
import importlib.util
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
SAVED = re.compile(r"# (?P<name>[\w/]+\.py)\n")
SAME = doctest.OutputChecker()


def _tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tools_docs_pages", ROOT / "tools" / "docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


docs = _tool()


@dataclass(frozen=True, slots=True)
class Snippet:
    """Something to run: where it begins, what it is, what it must print (None: not told)."""

    line: int
    kind: str
    code: str
    printed: str | None
    printed_line: int = 0


def snippets(page) -> Iterator[Snippet]:
    """What there is to run on a page, in order."""
    for block, after in pairwise((*page.blocks, None)):
        if block.language == "console":
            yield from _commands(block)
        if block.language != "python":
            continue
        saved = SAVED.match(block.text + "\n")
        shown = None if saved or after is None or not _is_output(page, block, after) else after
        yield Snippet(
            block.line,
            "file" if saved else "python",
            block.text + "\n",
            None if shown is None else f"{shown.text}\n".removeprefix("\n"),
            0 if shown is None else shown.line,
        )


def _is_output(page, block, after) -> bool:
    end = block.line + len(block.text.splitlines())
    between = [line for number, line in page.prose if end < number < after.line]
    return after.language == "text" and not any(line.strip() for line in between)


def _commands(block) -> Iterator[Snippet]:
    parts = re.split(r"^\$ (.*)$\n?", block.text + "\n", flags=re.MULTILINE)
    assert not parts[0].strip(), f"line {block.line}: output before the first command"
    line = block.line
    for command, printed in zip(parts[1::2], parts[2::2], strict=True):
        yield Snippet(line, "command", command, printed, line + 1)
        line += 1 + printed.count("\n")


class Reader:
    """Someone who does what a page says, in an empty directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        # As in a script: what is defined here travels to workers by its code, not by its name.
        self.module = ModuleType("__main__")

    def does(self, snippet: Snippet, page: Path) -> str:
        """Run it; returns what it prints."""
        if snippet.kind == "file":
            self._save(snippet)
            return ""
        return self._command(snippet) if snippet.kind == "command" else self._python(snippet, page)

    def _save(self, snippet: Snippet) -> None:
        found = SAVED.match(snippet.code)
        assert found is not None
        file = self.directory / found["name"]
        file.parent.mkdir(exist_ok=True)
        file.write_text(snippet.code)

    def _python(self, snippet: Snippet, page: Path) -> str:
        # With the page's own lines: an error says where it is.
        code = compile("\n" * (snippet.line - 1) + snippet.code, str(page), "exec")
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(code, self.module.__dict__)
        return said.getvalue()

    def _command(self, snippet: Snippet) -> str:
        places = [str(ROOT / "src"), str(ROOT)]
        settings = {
            **os.environ,
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "PYTHONPATH": os.pathsep.join(places),
            "COLUMNS": "100",
        }
        run = subprocess.run(
            ["/bin/sh", "-c", snippet.code],
            cwd=self.directory,
            env=settings,
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 0, f"{snippet.code}: exit {run.returncode}\n{run.stderr}"
        return run.stdout


def differs(snippet: Snippet, printed: str) -> str | None:
    """Say how what was printed differs from what the page shows."""
    if snippet.printed is None:
        return f"prints, and the page does not show it:\n{printed}" if printed.strip() else None
    if SAME.check_output(snippet.printed, printed, doctest.ELLIPSIS):
        return None
    return f"the page shows\n{snippet.printed}\nand it prints\n{printed}"


def rewritten(text: str, snippet: Snippet, printed: str, moved: int) -> tuple[str, int]:
    """The page's text with what was printed in place of what it shows, and how far lines moved."""
    lines = text.splitlines()
    start = snippet.printed_line - 1 + moved
    old = (snippet.printed or "").splitlines()
    new = printed.rstrip("\n").splitlines()
    lines[start : start + len(old)] = new
    return "\n".join(lines) + "\n", moved + len(new) - len(old)
