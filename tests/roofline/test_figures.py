"""Drawings are reproducible, cached by their data, readable and valid beside one another."""

from __future__ import annotations

import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from mla_var3.errors import PlanError
from mla_var3.roofline import Ceilings, figures, predict, svg
from mla_var3.roofline.figures import Point, Roof, roofline_svg

H200 = Roof("NVIDIA H200 <measured>", Ceilings(694.0, 4270.0))
PUBLISHED = Roof("NVIDIA H200, published", Ceilings(989.5, 4800.0))
STAGE = predict(36.5e9, 160e6, H200.ceilings)
POINTS = [Point.predicted("floor", STAGE), Point.measured("v1 & $x$", STAGE, 156.0)]


def draw(cache: Path, *, title: str = "Roofline", points: list[Point] = POINTS) -> str:
    return roofline_svg(title, [H200, PUBLISHED], points, cache_dir=cache)


def test_points_of_a_prediction() -> None:
    floor, v1 = POINTS
    assert floor.tflops == pytest.approx(694.0)
    assert v1.tflops == pytest.approx(36.5e9 / 156e-6 / 1e12)
    assert floor.intensity == v1.intensity == STAGE.intensity
    assert (floor.kind, v1.kind) == ("predicted", "measured")


def test_same_data_same_text_in_another_process(tmp_path: Path) -> None:
    here = draw(tmp_path / "a")
    code = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1]);"
        "from tests.roofline.test_figures import draw;"
        "sys.stdout.write(draw(Path(sys.argv[2])))"
    )
    there = subprocess.run(
        [sys.executable, "-c", code, str(Path(__file__).parents[2]), str(tmp_path / "b")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert there.stdout == here


def test_cache_is_keyed_by_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = draw(tmp_path)
    (file,) = tmp_path.iterdir()
    assert file.read_text() == first
    monkeypatch.setattr(figures, "_draw", lambda *_: pytest.fail("drawn twice"))
    assert draw(tmp_path) == first
    monkeypatch.undo()
    keys = {
        figures.data_key("Roofline", [H200], POINTS),
        figures.data_key("Roofline", [PUBLISHED], POINTS),
        figures.data_key("Roofline", [H200], POINTS[:1]),
        figures.data_key("Other", [H200], POINTS),
    }
    assert len(keys) == 4


def test_default_cache_lies_in_the_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(svg, "repo_root", lambda: tmp_path)
    drawing = roofline_svg("Roofline", [H200], [])
    assert [path.read_text() for path in (tmp_path / ".cache/figures").iterdir()] == [drawing]


def test_cache_that_cannot_be_written_costs_nothing_but_time(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert draw(tmp_path / "file" / "below").startswith("<svg ")


def test_it_is_well_formed_named_and_described(tmp_path: Path) -> None:
    root = ET.fromstring(draw(tmp_path, title="A < B"))
    svg = "{http://www.w3.org/2000/svg}"
    assert root.get("role") == "img"
    title, description = root.find(f"{svg}title"), root.find(f"{svg}desc")
    assert title is not None
    assert description is not None
    assert title.text == "A < B"
    assert root.get("aria-labelledby") == f"{title.get('id')} {description.get('id')}"
    assert "floor: 694 TFLOP/s predicted at 228.1 FLOP/byte." in (description.text or "")
    texts = "".join(root.itertext())
    assert "v1 & $x$: 234 TFLOP/s measured" in texts
    assert "arithmetic intensity (FLOP/byte)" in texts


def test_two_figures_can_share_a_page(tmp_path: Path) -> None:
    one, other = draw(tmp_path), draw(tmp_path, title="Other")
    ids = re.findall(r'\bid="([^"]+)"', one + other)
    assert len(ids) == len(set(ids)) > 20
    for drawing in (one, other):
        used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', drawing))
        assert used <= set(re.findall(r'\bid="([^"]+)"', drawing))
        # A rule for every element, as matplotlib writes it, would leak into the page.
        assert "*{" not in drawing.replace(" ", "")
        assert "<metadata" not in drawing
        assert "<?xml" not in drawing


def luminance(color: str) -> float:
    channels = [int(color[index : index + 2], 16) / 255 for index in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("background", ["#ffffff", "#1e2129"])
@pytest.mark.parametrize("color", svg.COLORS)
def test_data_stand_out_on_light_and_dark(color: str, background: str) -> None:
    assert contrast(color, background) >= 3.0


def test_text_takes_the_colour_of_the_page(tmp_path: Path) -> None:
    assert contrast(svg.INK_LIGHT, "#ffffff") >= 7
    assert contrast(svg.INK_DARK, "#1e2129") >= 7
    drawing = draw(tmp_path)
    colors = set(re.findall(r"#[0-9a-f]{6}\b", drawing.split("</style>", 1)[1]))
    assert colors <= set(svg.COLORS)
    assert "currentColor" in drawing


@pytest.mark.parametrize("bad", [0.0, float("inf"), float("nan"), -1.0])
def test_points_off_the_axes(bad: float) -> None:
    with pytest.raises(PlanError, match="intensity"):
        Point("x", bad, 1.0, "measured")
    with pytest.raises(PlanError, match="throughput"):
        Point("x", 1.0, bad, "measured")


def test_stage_without_time_has_no_point() -> None:
    with pytest.raises(PlanError, match="'idle' has no place"):
        Point.predicted("idle", predict(0, 0, H200.ceilings))
    with pytest.raises(PlanError, match="throughput is nan"):
        Point.measured("idle", STAGE, 0.0)


@pytest.mark.parametrize("roofs", [[], [H200] * 4])
def test_number_of_roofs(roofs: list[Roof]) -> None:
    with pytest.raises(PlanError, match="1 to 3 roofs"):
        roofline_svg("Roofline", roofs, [])
