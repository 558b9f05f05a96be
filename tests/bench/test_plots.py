"""Pictures of results: as they are committed, they are those of the committed results."""

from xml.etree import ElementTree as ET

import pytest

from bench.harness.machine import ROOT
from bench.plots.chart import Axis, chart
from bench.plots.pictures import PICTURES, Results

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_that_of_its_results(name):
    drawn = PICTURES[name](Results())

    so = "draw them again: python -m bench.plots"
    assert drawn == (ROOT / "docs" / "plots" / f"{name}.svg").read_text(), so


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_shown_and_keeps_inside_its_frame(name):
    root = ET.fromstring(PICTURES[name](Results()))
    _, _, width, height = map(float, root.attrib["viewBox"].split())

    assert f"plots/{name}.svg" in (ROOT / "docs" / "measured.md").read_text()
    assert root.findtext(f"{SVG}title")
    for text in root.iter(f"{SVG}text"):
        assert 0 <= float(text.attrib["x"]) <= width
        assert 0 <= float(text.attrib["y"]) <= height


def test_greater_values_are_higher_and_further_right():
    drawn = chart("t", Axis("x"), Axis("y"), {"one": [(0.0, 0.0), (10.0, 5.0)]})
    first, last, _ = (
        (float(c.attrib["cx"]), float(c.attrib["cy"]))
        for c in ET.fromstring(drawn).iter(f"{SVG}circle")
    )

    assert first[0] < last[0]
    assert first[1] > last[1]


def test_names_are_no_markup():
    drawn = chart("a < b", Axis("x"), Axis("y"), {"<one>": [(1.0, 1.0)]})

    assert "a < b" == ET.fromstring(drawn).findtext(f"{SVG}title")
