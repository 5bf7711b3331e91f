"""The regime pages say what the library computes."""

from __future__ import annotations

import html
import json
import re
import xml.etree.ElementTree as ET

import pytest

from generators.mla import cards, decode, peers
from generators.mla import regimes as regimes
from generators.mla.regimes import CONTEXTS, DERIVED, PAGE, device_page, map_figure
from generators.write import figures
from mla_var3.errors import KnowledgeError
from mla_var3.workloads.mla import regimes as library
from tests.generators.checking import Seen, dead_links, see
from tests.generators.planted import small_site
from tests.knowledge.trees import TEXT


@pytest.fixture(scope="module")
def found(site):
    return {page.path: page for page in regimes.pages(site)}


def test_a_page_for_each_device_with_ceilings(site, found):
    keys = {device.key for device in library.usable_devices()}
    assert set(found) == {
        PAGE, DERIVED, peers.PATH, cards.PATH, decode.PATH, *map(device_page, keys)
    }  # fmt: skip
    assert "nvidia-h200-sxm" in keys
    for key in keys:
        page = found[device_page(key)]
        assert page.source == f"knowledge/devices/{key}.toml"
        assert f"({key}.md)" in found[PAGE].content


def test_links_resolve(site, pages, found):
    assert list(dead_links(found.values(), pages)) == []


@pytest.mark.parametrize("key", ["nvidia-h200-sxm", "nvidia-rtx-5090"])
def test_figures_of_a_device(found, key):
    text = found[device_page(key)].content
    ceilings = library.ceilings_of(key)
    assert figures.reference_rates(ceilings) in text
    assert ("as published" in text) == (key == "nvidia-rtx-5090")
    for name in ("best-n", "shared-prefix", "map"):
        assert library.figure(name, key) in text
    for t in CONTEXTS:
        start = library.crossing("mla_var6_plus", "flash_mla", library.Shape(), t, ceilings)
        column = CONTEXTS.index(t) + 2
        row = next(line for line in text.splitlines() if "beats `flash_mla`" in line)
        assert row.split(" | ")[column - 1].rstrip(" |") == f"s = {start}"


def test_what_was_measured_is_where_there_are_records(site, found):
    for device in library.usable_devices():
        has_records = any(run.record.target == device.key for run in site.runs)
        text = found[device_page(device.key)].content
        assert (f"(../results/{device.key}.md)" in text) == has_records
    assert "(../results/index.md)" in found[PAGE].content


def test_devices_say_whether_their_ceilings_are_measured(found):
    table = found[PAGE].content.split("## Devices")[1]
    for device in library.usable_devices():
        named = f"| [{device.name}]({device.key}.md) |"
        row = next(line for line in table.splitlines() if line.startswith(named))
        assert row.endswith(f"| {device.ceilings(library.DTYPE).source_kind} |")


def test_the_analysis_leads_with_the_verdict_on_libraries(found):
    text = str(found["mla/index.md"].content)
    assert text.index("one run timed both FlashMLA and kernels of ours") < text.index(
        "Multi-head latent attention can"
    )


def test_a_map_draws_the_library_s_winners():
    found = library.regime_map("nvidia-h200-sxm")
    drawings = re.findall(r"<svg.*?</svg>", map_figure(found))
    assert len(drawings) == 2  # For wide and for narrow screens.
    words = {"flash_mla": "latent", "flash_attention": "decompr.", "mla_var6_plus": "mixed"}
    for drawing in drawings:
        root = ET.fromstring(drawing)
        texts = [node.text for node in root.iter("text")]
        for winner, word in words.items():
            assert texts.count(word) == sum(cell.winner == winner for cell in found.cells)
        for cell in found.cells:
            if cell.winner == "mla_var6_plus":
                assert str(cell.n) in texts
        for value in (*found.s_values, *found.t_values):
            assert str(value) in texts
        said = root.attrib["aria-label"]
        assert said.count("s=") == len(found.s_values)
        assert f"s=1: latent from t={found.t_values[0]}" in said


def test_a_map_changes_with_a_ceiling():
    one, other = map(library.regime_map, ("nvidia-h200-sxm", "nvidia-rtx-5090"))
    assert map_figure(one) != map_figure(other)


def test_drawings_take_the_colours_of_the_page(found):
    drawings = re.findall(r"<svg.*?</svg>", found[PAGE].content, re.DOTALL)
    assert drawings
    for text in drawings:
        assert not re.findall(r"#[0-9a-f]{6}\b", text)
        assert "currentColor" in text


def test_the_calculator_carries_the_library_s_spec(found):
    data = re.findall(r'data-spec="([^"]*)"', found[PAGE].content)
    assert [json.loads(html.unescape(item)) for item in data] == [
        json.loads(json.dumps(library.calculator_spec()))
    ]
    assert "<script" not in found[PAGE].content


def test_words_of_a_spec_are_not_markup(monkeypatch):
    spec = library.calculator_spec()
    spec["devices"][0]["name"] = "</script><script>alert(1)</script>"
    spec["inputs"][0]["label"] = '"><script>alert(1)</script>'
    spec["tie"] = '"><script>alert(1)</script>'
    monkeypatch.setattr(regimes, "calculator_spec", lambda: spec)
    seen = Seen(regimes.calculator())
    assert seen.scripts == []
    assert "alert(1)" in seen.text


def test_without_the_text_there_is_no_page(tree):
    (tree.root / TEXT).unlink()
    site = small_site(tree)
    assert regimes.pages(site) == []
    assert regimes.places(site) == {}


def test_a_text_that_cannot_be_read_is_an_error(tree):
    tree.replace(TEXT, "title: Regimes", "titel: Regimes")
    with pytest.raises(KnowledgeError, match=r"knowledge/workloads/mla\.md is not a readable text"):
        regimes.pages(small_site(tree))


def test_raw_html_of_the_text_does_not_run(tree):
    tree.replace(TEXT, "They cross", "<script>alert(1)</script> They cross")
    pages = regimes.pages(small_site(tree))
    assert see(pages[0]).scripts == []
