"""Checks the pages and makes the site of them: `./x docs`.

Checked is that every relative link leads somewhere, that other addresses are addresses, and that
every Python block compiles. Other sites are not asked: a check must not fail because somebody
else's server does. What the blocks do is tested by tests/docs.
"""

import http.server
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

FENCE = re.compile(r"^(?P<indent> *)(?P<fence>`{3,}|~{3,}) *(?P<language>\w*)")
LINK = re.compile(r"\[[^\]]*\]\(\s*<?(?P<target>[^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
HEADING = re.compile(r"^#{1,6} +(?P<title>.+?) *#*$")
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:")
SITE = Path("build") / "docs"
# Not in the site: it is what Sphinx remembers from one build to the next.
REMEMBERED = Path("build") / "doctrees"
PORT = 8000


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
    """Find the links of a page, with their lines."""
    for number, line in page.prose:
        for found in LINK.finditer(line):
            yield number, found["target"]


def broken_link(page: Page, target: str) -> str | None:
    """Say what is wrong with a link, if anything is."""
    if ELSEWHERE.match(target):
        address = urlsplit(target)
        good = address.scheme == "https" and "." in (address.hostname or "")
        return None if good else f"{target} is no address that begins with https://"
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


def pages_of(root: Path) -> list[Page]:
    """All pages: those beside the code, and those of docs/."""
    return [
        read(file) for file in (*sorted(root.glob("*.md")), *sorted((root / "docs").rglob("*.md")))
    ]


def check(root: Path) -> int:
    """Check all pages, print what is wrong and what was checked; return the exit code."""
    pages = pages_of(root)
    found = [
        (page.path.relative_to(root), *trouble) for page in pages for trouble in troubles(page)
    ]
    for file, line, wrong in found:
        print(f"{file}:{line}: {wrong}")
    linked = sum(1 for page in pages for _ in links(page))
    python = sum(block.language in {"python", "py"} for page in pages for block in page.blocks)
    print(
        f"docs: {len(pages)} pages, {linked} links, {python} Python blocks checked; "
        f"{len(found)} wrong",
        flush=True,
    )
    return 1 if found else 0


def build(root: Path, site: Path = SITE, remembered: Path = REMEMBERED) -> int:
    """Make the site, every warning an error; print what is wrong with which page."""
    print("docs: making the site", flush=True)
    # Anew each time (-E): a page that is not read again would not be warned of again.
    options = ("-b", "html", "-W", "--keep-going", "-n", "-q", "-E")
    places = ("-c", "docs", "-d", str(remembered), ".", str(site))
    command = [sys.executable, "-m", "sphinx", *options, *places]
    run = subprocess.run(command, cwd=root, stderr=subprocess.PIPE, text=True, check=False)
    # Sphinx names pages by their full path; the reader knows where the repository is.
    print(run.stderr.replace(f"{root}/", ""), end="", flush=True)
    if run.returncode:
        print("docs: the site has faults: see above", flush=True)
        return 1
    print(f"docs: the site is {site}/index.html; ./x docs --serve shows it", flush=True)
    return 0


def serve(root: Path, port: int) -> int:
    """Show the site to browsers on this host until interrupted."""
    handler = partial(Quiet, directory=str(root / SITE))
    with http.server.ThreadingHTTPServer(("127.0.0.1", port), handler) as server:
        print(f"docs: http://127.0.0.1:{server.server_port}/ until Ctrl-C", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()
    return 0


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Says nothing of what it gives."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Say nothing."""


def main(root: Path, arguments: Sequence[str] = ()) -> int:
    """Check the pages, make the site, and show it if asked to; return the exit code."""
    serving = bool(arguments) and arguments[0] == "--serve"
    given = arguments[1:] if serving else arguments
    if len(given) > serving or not all(each.isdecimal() and int(each) < 65_536 for each in given):
        print(f"docs knows nothing of {' '.join(given)}: see ./x docs --help", file=sys.stderr)
        return 2
    # Both are run: who mends the pages wants to know all of it.
    failed = max(check(root), build(root))
    return failed or (serve(root, int(given[0]) if given else PORT) if serving else 0)


if __name__ == "__main__":
    sys.exit(main(Path.cwd(), sys.argv[1:]))
