"""The site in a browser, as its readers meet it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urljoin

import pytest
from site_browser import BASE, CHARACTERS, FAMILIES, WIDTHS, Built, OpenTab, Tab
from site_tree import ROOT

from generators.build import assets

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]


def addresses(built: Built) -> list[str]:
    """Every page of the site, as ``kernels/mla/``."""
    files = built.online.rglob("index.html")
    found = (file.parent.relative_to(built.online).as_posix() for file in files)
    return sorted("" if path == "." else f"{path}/" for path in found)


def families(built: Built) -> dict[str, str]:
    """One page of each kind: those of a folder and depth are alike."""
    chosen: dict[str, str] = {}
    for address in addresses(built):
        parts = address.rstrip("/").split("/")
        deep = (built.online / address).parent.name if len(parts) > 2 else ""
        chosen.setdefault(
            f"{parts[0]} {len(parts)} {deep if parts[0] == 'catalogue' else ''}", address
        )
    # Names that show most: compiled, measured, with annotations, a diff, tabs and a roofline.
    chosen["version"] = "kernels/mla/cutile-dsl/mla_var6_plus/v4/"
    chosen["results"] = "results/nvidia-h200-sxm/"
    chosen["explorer"] = "results/explorer/"
    return chosen


def walk(tab: Tab, wanted: Iterable[str]) -> set[str]:
    """Open pages at every width, the machine's fonts hidden; gives the links of the navigation."""
    reached: set[str] = set()
    wide: dict[str, dict[int, int]] = {}
    characters: set[str] = set()
    for address in wanted:
        tab.open(address)
        assert tab.page.locator("h1").first.is_visible(), address
        links = tab.page.eval_on_selector_all(
            ".md-nav__link[href], .md-tabs__link[href]", "links => links.map(link => link.href)"
        )
        reached |= {link.partition("#")[0] for link in links}
        characters |= set(tab.page.evaluate(CHARACTERS))
        # Back and forth: every other page opens on a phone.
        forth = tab.page.viewport_size["width"] <= WIDTHS[0]
        if over := tab.overflows(WIDTHS if forth else WIDTHS[::-1]):
            wide[address] = over
    tab.page.wait_for_load_state("networkidle")
    tab.check()
    assert not wide
    assert tab.foreign_glyphs(filter(str.isprintable, characters)) == ""
    return reached


def test_every_kind_of_page_fits_every_window_and_needs_no_font(built: Built, open_tab: OpenTab):
    walk(open_tab(), families(built).values())


@pytest.mark.exhaustive
@pytest.mark.timeout(1800)
def test_every_page_fits_every_window_and_needs_no_font(built: Built, open_tab: OpenTab):
    reached = walk(open_tab(), addresses(built))
    known = {urljoin(BASE, address) for address in addresses(built)}
    assert reached <= known
    # Nothing is reachable by address only.
    assert known - reached <= {BASE}


def test_a_character_that_the_site_s_fonts_lack_is_noticed(open_tab: OpenTab):
    tab = open_tab()
    tab.open("glossary/")
    assert tab.foreign_glyphs("aλ→♔") == "♔"


def test_explorer_sorts_filters_and_searches(open_tab: OpenTab):
    tab = open_tab()
    tab.open("results/explorer/")
    # One table per workload; MLA's holds records of every mode.
    block = tab.page.locator("#mla ~ .explorer").first
    block.locator(".explorer__choices").wait_for()
    block.locator(".datatable-selector").select_option(label="all")

    def column(name: str) -> list[str]:
        heads = [head.strip() for head in block.locator("th").all_inner_texts()]
        cells = block.locator(f"tbody tr td:nth-child({heads.index(name) + 1})")
        return [text.strip() for text in cells.all_inner_texts()]

    everything = column("Mode")
    block.get_by_label("Mode").first.select_option("event")
    assert set(column("Mode")) == {"event"}
    assert 0 < len(column("Mode")) < len(everything)

    block.get_by_role("button", name="Median, us").click()
    times = [float(text) for text in column("Median, us")]
    assert times == sorted(times)
    block.get_by_role("button", name="Median, us").click()
    assert [float(text) for text in column("Median, us")] == sorted(times, reverse=True)

    block.get_by_label("Freshness").first.select_option("stale")
    assert set(column("Freshness")) == {"stale"}
    block.get_by_label("Freshness").first.select_option("all")
    block.get_by_label("Search records").fill("mla_var6_plus v4")
    assert set(column("Version")) == {"mla_var6_plus v4"}
    block.get_by_label("Search records").fill("")
    block.get_by_label("Mode").first.select_option("all")
    assert len(column("Mode")) == len(everything)
    tab.check()


def test_explorer_fits_its_window_and_keeps_what_was_chosen(open_tab: OpenTab):
    tab = open_tab()
    page = tab.page
    for width, least in ((1440, 13), (390, 3)):
        page.set_viewport_size({"width": width, "height": 900})
        tab.open("results/explorer/")
        block = page.locator("#mla ~ .explorer").first
        block.locator(".explorer__columns").wait_for()
        container = block.locator(".datatable-container")
        assert container.evaluate("box => box.scrollWidth <= box.clientWidth"), width
        heads = [head.strip() for head in block.locator("th:visible").all_inner_texts()]
        assert "Median, us" in heads
        assert len(heads) >= least, heads

    block.locator(".explorer__columns summary").click()
    block.get_by_label("Of the bound").uncheck()
    block.get_by_label("Spills").check()
    block.get_by_label("Mode").first.select_option("event")
    block.get_by_label("Search records").fill("v4")
    block.get_by_role("button", name="Median, us").click()
    kept = page.url
    assert "mla.mode=event" in kept
    tab.open(kept)
    block.locator(".explorer__columns").wait_for(state="attached")
    heads = [head.strip() for head in block.locator("th:visible").all_inner_texts()]
    assert "Spills" in heads
    assert "Of the bound" not in heads
    times = [float(text) for text in block.locator("tbody td:nth-child(3)").all_inner_texts()]
    assert times
    assert times == sorted(times)
    versions = block.locator("tbody tr td:first-child").all_inner_texts()
    assert versions
    assert all("v4" in text for text in versions)
    tab.check()


def test_formulas_render_without_a_network(built: Built, open_tab: OpenTab):
    pages = [a for a in addresses(built)
             if 'class="arithmatex"' in (built.online / a / "index.html").read_text()]  # fmt: skip
    assert pages
    tab = open_tab()
    for address in pages[:3]:
        tab.open(address)
        tab.page.wait_for_selector(".arithmatex .katex")
        assert tab.page.locator(".katex-error").count() == 0
    tab.check()


#: Opens what is folded.
UNFOLD = "for (const folded of document.querySelectorAll('details')) folded.open = true"


def test_a_source_page_has_annotations_copy_buttons_diff_and_edit_link(open_tab: OpenTab):
    tab = open_tab()
    tab.open("kernels/mla/cutile-dsl/flash_mla/v1/")
    page = tab.page
    assert page.locator(".md-annotation").count() > 5
    assert page.locator("button.md-clipboard, button[data-clipboard-target]").count() > 0
    assert page.locator(".diff__changed").count() > 5
    edit = page.locator("a[rel='edit']").get_attribute("href")
    assert edit.endswith("/edit/main/kernels/cutile/mla/flash_mla/flash_mla_v1/flash_mla_v1.py")
    page.evaluate(UNFOLD)
    first = page.locator(".md-annotation__index:visible").first
    first.scroll_into_view_if_needed()
    first.focus()
    page.wait_for_selector(".md-tooltip--active, .md-tooltip2--active")
    tab.check()


def test_a_number_leads_to_its_record_and_that_to_its_file(open_tab: OpenTab):
    tab = open_tab()
    page = tab.page
    tab.open("kernels/mla/cutile-dsl/flash_mla/v1/")
    page.evaluate(UNFOLD)
    number = page.locator(".facts a[href*='/records/']").first
    # Quiet among the words around it.
    assert number.evaluate("a => getComputedStyle(a).textDecorationStyle") == "dotted"
    number.click()
    page.wait_for_url("**/records/**#*")
    # Instant navigation moves no :target.
    name = page.url.partition("#")[2]
    record = page.locator(f"[id='{name}']")
    record.wait_for()
    assert "bf16" in record.inner_text()
    file = page.locator(f"[id='{name}'] ~ p a", has_text="Download the JSON").first.get_attribute(
        "href"
    )
    read = page.evaluate("url => fetch(url).then(answer => answer.json())", file)
    assert read["kernel"]["design"] == "flash_mla"
    tab.check()


def test_spills_on_sm_120_are_two_clicks_from_home(open_tab: OpenTab):
    tab = open_tab()
    page = tab.page
    tab.open("")
    page.locator("a[href$='register-spills/#sm_120']").first.click()
    page.wait_for_url("**/diagnosis/register-spills/#sm_120")
    first = page.locator("#sm_120 ~ .md-typeset__scrollwrap tbody tr").first
    first.wait_for()
    assert "0 instructions" in first.inner_text()
    first.locator("a").first.click()
    page.wait_for_url("**#o17-rows-that-fit-registers")
    assert page.locator(":target ~ .highlight").first.is_visible()
    assert page.locator(":target ~ p", has_text="When it fails").first.is_visible()
    tab.check()


def test_markup_in_a_record_runs_nothing(open_tab: OpenTab):
    tab = open_tab()
    tab.open("kernels/mla/cutile-dsl/flash_mla/v2/")
    tab.page.evaluate(UNFOLD)
    assert "launch failed: <script>" in tab.page.inner_text("article")
    assert tab.page.title() != "owned"
    assert tab.page.locator("a[href^='javascript:']").count() == 0
    tab.check()


def test_instant_navigation_keeps_the_page(open_tab: OpenTab):
    tab = open_tab()
    tab.open("")
    tab.page.evaluate("window.stays = true")
    tab.page.click(".md-tabs__link:has-text('Results')")
    tab.page.wait_for_url(f"{BASE}results/")
    tab.page.click("article a:has-text('explorer')")
    tab.page.wait_for_selector(".explorer__choices")
    assert tab.page.evaluate("window.stays")
    tab.check()


def test_unknown_page_says_so_and_leads_home(open_tab: OpenTab):
    tab = open_tab()
    tab.page.goto(BASE + "kernels/no-such-design/")
    assert "Not found" in tab.page.inner_text("h1")
    tab.page.click("article a:has-text('home page')")
    tab.page.wait_for_url(BASE)


@pytest.mark.exhaustive  # A second build.
def test_the_offline_site_works_from_files(offline: Path, open_tab: OpenTab):
    tab = open_tab()
    tab.open((offline / "index.html").as_uri())
    tab.page.click(".md-tabs__link:has-text('Results')")
    tab.page.click("article a:has-text('explorer')")
    tab.page.wait_for_selector(".explorer__choices")
    hit = tab.search("mla_var6_plus v4")[0]
    assert "v4.html" in hit
    assert hit.startswith("file:")
    fonts = "[...document.fonts].filter(font => font.status == 'loaded').map(font => font.family)"
    assert any("IBM Plex Sans" in family for family in tab.page.evaluate(fonts))
    tab.check()


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("asked", "scheme"), [("dark", "slate"), ("light", "default")], ids=["dark", "light"]
)
def test_every_kind_of_page_is_accessible_and_in_the_site_s_fonts(
    built: Built, open_tab: OpenTab, asked: str, scheme: str
):
    script = (assets.folder(ROOT, "axe-core") / "axe.min.js").read_text()
    found: dict[str, dict[str, list[str]]] = {}
    tab = open_tab()
    tab.page.emulate_media(color_scheme=asked)
    for address in families(built).values():
        tab.open(address)
        used = tab.page.evaluate(FAMILIES)
        assert all(family.startswith('"IBM Plex') for family in used), address
        tab.page.evaluate(script)
        tab.page.add_style_tag(content="* { transition: none !important }")  # no colours that fade
        tab.page.evaluate(
            "scheme => document.body.setAttribute('data-md-color-scheme', scheme)", scheme
        )
        result = tab.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        for violation in result["violations"]:
            if violation["impact"] in ("serious", "critical"):
                nodes = [node["html"][:160] for node in violation["nodes"][:3]]
                found.setdefault(violation["id"], {})[address] = nodes
    assert not found, json.dumps(found, indent=1)


def test_keyboard_reaches_search_and_content(open_tab: OpenTab):
    tab = open_tab()
    tab.open("kernels/")
    tab.page.keyboard.press("Tab")
    assert tab.page.evaluate("document.activeElement.classList.contains('md-skip')")
    tab.page.keyboard.press("Enter")
    tab.page.wait_for_url("**/#kernels")
    # The theme moves the focus when it has followed the link.
    tab.page.wait_for_function("() => document.activeElement === document.body")
    tab.page.wait_for_load_state("networkidle")
    tab.page.keyboard.press("/")
    tab.page.wait_for_function(
        "() => document.activeElement.classList.contains('md-search__input')"
    )


def test_both_configurations_differ_in_instant_navigation_only():
    import yaml

    class Loader(yaml.SafeLoader):
        """Takes !ENV for what it is followed by."""

    Loader.add_constructor("!ENV", lambda loader, node: loader.construct_sequence(node))
    online, offline = (
        yaml.load((ROOT / name).read_text(), Loader)["theme"]["features"]
        for name in ("mkdocs.yml", "mkdocs-offline.yml")
    )
    assert [f for f in online if not f.startswith("navigation.instant")] == offline


def test_assets_are_complete(built: Built):
    complete(built.online)


@pytest.mark.exhaustive
def test_assets_of_the_offline_site_are_complete(offline: Path):
    complete(offline)
    assert (offline / "assets/vendor/iframe-worker/shim/index.js").is_file()


def complete(site: Path) -> None:
    assert (site / "assets/vendor/katex/dist/katex.min.js").is_file()
    assert not list(site.rglob("axe*.js"))
