"""The site is made without a warning, is whole without a network, and names all that is public."""

import inspect
import re
import sys
import zlib
from html import unescape
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree as ET

import pytest

import anabranch as ab
from anabranch.api.query import Query
from anabranch.cli.command import parser
from anabranch.program.keyed_stream import KeyedStream
from anabranch.program.stream import Stream
from anabranch.program.windowed_stream import WindowedStream
from tests.docs.snippets import ROOT, docs

PAGES = docs.pages_of(ROOT)
OURS = [page for page in PAGES if page.path.is_relative_to(ROOT / "docs")]
SVG = "{http://www.w3.org/2000/svg}"
# Of a character of 13 px, and of 11 px, rather wide ones.
WIDTH, NARROW = 7.0, 5.9


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, made anew."""
    home = tmp_path_factory.mktemp("site")
    said = home / "said"
    with said.open("w") as out, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", out)
        code = docs.build(ROOT, home / "site", home / "trees")
    assert code == 0, said.read_text()
    return home / "site"


class Links(HTMLParser):
    """What a page refers to, and what can be referred to in it."""

    def __init__(self, text):
        super().__init__()
        self.links, self.loaded, self.ids = [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        if found.get("id"):
            self.ids.add(found["id"])
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        elif tag == "link" and found.get("href"):
            self.loaded.append(found["href"])
        elif found.get("src"):
            self.loaded.append(found["src"])


@pytest.fixture(scope="module")
def pages(site):
    return {page: Links(page.read_text()) for page in site.rglob("*.html")}


@pytest.mark.slow
def test_every_page_of_the_repository_is_on_the_site(site):
    made = {str(page.relative_to(site).with_suffix("")) for page in site.rglob("*.html")}

    assert set() == {str(page.path.relative_to(ROOT).with_suffix("")) for page in PAGES} - made


@pytest.mark.slow
def test_every_link_and_anchor_of_the_site_leads_somewhere(site, pages):
    lost = []
    for page, found in pages.items():
        for link in (*found.links, *found.loaded):
            address = urlsplit(link)
            if address.scheme:
                continue
            target = (page.parent / unquote(address.path)).resolve() if address.path else page
            known = pages.get(target)
            anchor = unquote(address.fragment)
            if not target.exists() or (anchor and known and anchor not in known.ids):
                lost.append(f"{page.relative_to(site)}: {link}")

    assert [] == lost


@pytest.mark.slow
def test_reading_the_site_needs_no_network(site, pages):
    elsewhere = {
        each
        for found in pages.values()
        for each in found.loaded
        if urlsplit(each).scheme or each.startswith("//")
    }
    styles = "".join(style.read_text() for style in site.rglob("*.css"))
    imported = re.findall(r"url\(['\"]?(?:https?:)?//[^)]*\)|@import[^;]*", styles)

    assert (set(), []) == (elsewhere, imported)


def _documented(site):
    """The Python names in the site's own index."""
    data = (site / "objects.inv").read_bytes()
    lines = zlib.decompress(data.split(b"\n", 4)[4]).decode().splitlines()
    return {line.split()[0] for line in lines if " py:" in line}


def _public(kind):
    return {name for name in vars(kind) if not name.startswith("_")}


def _wanted():
    """Every public name, as the reference calls it."""
    modules = {"anabranch": ab, "anabranch.testing": ab.testing}
    modules |= {"anabranch.sources": ab.sources, "anabranch.sinks": ab.sinks}
    inside = {"sinks", "sources", "testing"}
    for home, module in modules.items():
        yield from (f"{home}.{name}" for name in module.__all__ if name not in inside)
    for kind in (Stream, KeyedStream, WindowedStream, Query):
        home = f"{kind.__module__}.{kind.__name__}"
        yield from (f"{home}.{name}" for name in _public(kind))
    for home, kind in {
        "anabranch.Program": ab.Program,
        "anabranch.KeyedOperator": ab.KeyedOperator,
        "anabranch.sources.Source": ab.sources.Source,
        "anabranch.sinks.Sink": ab.sinks.Sink,
    }.items():
        yield from (f"{home}.{name}" for name in _public(kind) if name != "out")
    yield from (f"anabranch.api.query.Query.{name}" for name in ("id", "name"))
    yield from (f"anabranch.sinks.Memory.{name}" for name in ("rows", "frame"))


@pytest.mark.slow
def test_every_public_name_is_in_the_reference(site):
    assert set() == set(_wanted()) - _documented(site)


def test_every_command_is_in_the_reference():
    page = (ROOT / "docs" / "reference" / "command-line.md").read_text()

    [commands] = [action.choices for action in parser()._actions if action.choices]
    assert list(commands) == re.findall(r"^```\{command-help\} (\w+)$", page, re.MULTILINE)


@pytest.mark.slow
def test_examples_of_commands_are_a_line_each_on_the_site(site):
    page = unescape((site / "docs" / "reference" / "command-line.html").read_text())

    shown = re.sub(r"<[^>]+>", "", page).splitlines()
    assert "  anabranch run views.py --checkpoint ckpt" in shown
    assert "      go on where the last run ended" in shown


def test_public_names_have_docstrings_that_are_sentences():
    bare = [
        name
        for module in (ab, ab.sources, ab.sinks, ab.testing)
        for name in module.__all__
        if callable(found := getattr(module, name))
        and not (inspect.getdoc(found) or "").split("\n")[0].endswith((".", ":"))
    ]

    assert [] == bare


# --- what the pages say of the repository


def test_files_that_pages_name_exist():
    """Names of packages that come are in ARCHITECTURE.md, which says so of each."""
    named = re.compile(r"`((?:src/anabranch|tests|examples|bench|tools)/[\w/.-]+)`")
    lost = [
        f"{page.path.name}:{number}: {path}"
        for page in OURS
        for number, line in enumerate(page.path.read_text().splitlines(), start=1)
        for path in named.findall(line)
        if not (ROOT / path).exists()
    ]

    assert [] == lost


def test_what_is_not_run_says_so():
    """Python that is shown and not run is a directive, whose caption readers see."""
    quiet = [
        (page.path.name, shown)
        for page in PAGES
        for shown in re.findall(
            r"^```\{code-block\} python\n(.*)$", page.path.read_text(), re.MULTILINE
        )
        if not shown.startswith(':caption: "Not run by the tests: needs ')
    ]

    assert [] == quiet


def test_kinds_of_blocks_are_those_that_are_known():
    """A block of another kind would be passed over, and nobody would know."""
    kinds = {block.language for page in OURS for block in page.blocks}

    assert {"", "console", "python", "sh", "text"} >= kinds


# --- pictures


@pytest.mark.parametrize("file", sorted((ROOT / "docs" / "pictures").glob("*.svg")), ids=str)
def test_pictures_are_whole_named_and_keep_inside_their_frame(file):
    root = ET.parse(file).getroot()
    _, _, width, height = map(float, root.attrib["viewBox"].split())

    assert root.findtext(f"{SVG}title")
    assert "href" not in file.read_text()
    for text in root.iter(f"{SVG}text"):
        across = len(text.text or "") * (NARROW if text.get("class") == "small" else WIDTH)
        left = float(text.attrib["x"]) - (across / 2 if text.get("text-anchor") else 0)
        assert left >= 0, text.text
        assert left + across <= width, text.text
        assert 0 < float(text.attrib["y"]) < height, text.text


def test_pictures_are_all_used():
    drawn = {file.name for file in (ROOT / "docs" / "pictures").iterdir()}
    shown = set(re.findall(r"pictures/([\w.-]+)\)", (ROOT / "docs" / "concepts.md").read_text()))

    assert drawn == shown
