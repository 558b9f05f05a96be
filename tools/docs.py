"""Checks the pages: every relative link leads somewhere, every Python block compiles.

Other sites are not asked: a check must not fail because somebody else's server does.
"""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^(?P<indent> *)(?P<fence>`{3,}|~{3,}) *(?P<language>\w*)")
LINK = re.compile(r"\[[^\]]*\]\(\s*<?(?P<target>[^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
HEADING = re.compile(r"^#{1,6} +(?P<title>.+?) *#*$")
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: where its first line is, its language, its text."""

    line: int
    language: str
    text: str


@dataclass(frozen=True, slots=True)
class Page:
    """A Markdown page, its fenced blocks apart from its prose (line number, line)."""

    path: Path
    prose: tuple[tuple[int, str], ...]
    blocks: tuple[Block, ...]

    @classmethod
    def parse(cls, path: Path, text: str) -> "Page":
        r"""Take a page apart.

        >>> page = Page.parse(Path("a.md"), "Hi.\n```python\nx = 1\n```\n")
        >>> page.blocks
        (Block(line=3, language='python', text='x = 1'),)
        """
        prose, blocks = [], []
        lines = enumerate(text.splitlines(), start=1)
        for number, line in lines:
            opening = FENCE.match(line)
            if opening is None:
                prose.append((number, re.sub(r"`[^`]*`", "", line)))
                continue
            inside = []
            for _, inner in lines:
                if inner.strip().startswith(opening["fence"]):
                    break
                inside.append(inner.removeprefix(opening["indent"]))
            blocks.append(Block(number + 1, opening["language"], "\n".join(inside)))
        return cls(path, tuple(prose), tuple(blocks))


def anchors(page: Page) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them.

    >>> anchors(Page.parse(Path("a.md"), "## What it *is*, and isn't"))
    {'what-it-is-and-isnt'}
    """
    titles = [found["title"] for _, line in page.prose if (found := HEADING.match(line))]
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def links(page: Page) -> Iterator[tuple[int, str]]:
    """Find the relative links of a page, with their lines."""
    for number, line in page.prose:
        for found in LINK.finditer(line):
            if not ELSEWHERE.match(found["target"]):
                yield number, found["target"]


def broken_link(page: Page, target: str) -> str | None:
    """Say what is wrong with a link, if anything is."""
    name, _, anchor = target.partition("#")
    file = page.path.parent / name if name else page.path
    if not file.exists():
        return f"there is no {target}"
    if anchor and file.suffix == ".md" and anchor not in anchors(read(file)):
        return f"{file.name} has no heading for #{anchor}"
    return None


def broken_code(block: Block) -> str | None:
    """Say what is wrong with a block of Python, if anything is; sessions (>>>) are for doctest."""
    if block.language not in {"python", "py"} or block.text.lstrip().startswith(">>>"):
        return None
    try:
        compile(block.text, "block", "exec")
    except SyntaxError as error:
        return f"does not compile: {error.msg} (line {error.lineno} of the block)"
    return None


def read(path: Path) -> Page:
    """Read and take apart one page."""
    return Page.parse(path, path.read_text(encoding="utf-8"))


def troubles(page: Page) -> Iterator[tuple[int, str]]:
    """Find all that is wrong with a page, with the lines."""
    for line, target in links(page):
        wrong = broken_link(page, target)
        if wrong:
            yield line, wrong
    for block in page.blocks:
        wrong = broken_code(block)
        if wrong:
            yield block.line, wrong


def main(root: Path) -> int:
    """Check all pages, print what is wrong and what was checked; return the exit code."""
    files = sorted(root.glob("*.md"))
    pages = [read(file) for file in (*files, *sorted((root / "docs").rglob("*.md")))]
    found = [
        (page.path.relative_to(root), *trouble) for page in pages for trouble in troubles(page)
    ]
    for file, line, wrong in found:
        print(f"{file}:{line}: {wrong}")
    linked = sum(1 for page in pages for _ in links(page))
    python = sum(block.language in {"python", "py"} for page in pages for block in page.blocks)
    print(
        f"docs: {len(pages)} pages, {linked} relative links, {python} Python blocks checked; "
        f"{len(found)} wrong"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(Path.cwd()))
