"""Pattern pages, the index and the table of metrics follow the knowledge."""

from __future__ import annotations

import re

import pytest

from generators.pages import catalogue, kernels
from generators.pages.catalogue import label, pattern_path
from mla_var3.errors import KnowledgeError
from mla_var3.knowledge import metrics
from mla_var3.runtime import registry
from tests.generators.checking import dead_links, html_of, see
from tests.generators.planted import small_pages, small_site
from tests.knowledge.trees import ANTI, PAGE, make_record


def by_path(site):
    return {page.path: page for page in catalogue.pages(site)}


@pytest.mark.slow
def test_every_pattern_has_a_page_and_a_row(site):
    found = by_path(site)
    index = found[catalogue.INDEX].content
    for document in site.catalogue.patterns:
        meta = document.pattern
        page = found[pattern_path(meta)]
        assert page.source == document.name
        assert page.nav[0] == "Catalogue"
        assert index.count(f"{pattern_path(meta).removeprefix('catalogue/')})") == 1
        assert site.addresses[document.name] == page.path
    assert f"{len(site.catalogue.patterns)} " not in index.split("\n")[0]
    rows = [line for line in index.splitlines() if line.startswith("| [")]
    assert len(rows) == len(site.catalogue.patterns)


def test_rows_state_what_the_filter_offers(site):
    index = see(by_path(site)[catalogue.INDEX])
    for document in site.catalogue.patterns:
        meta = document.pattern
        assert label(meta) in index.text
        assert ", ".join(meta.archs) in index.text
        assert ", ".join(meta.regimes) in index.text


@pytest.mark.parametrize(
    ("id_", "scope", "wanted"),
    [
        ("o2-head-grouping", "shared", "O2 head grouping"),
        ("a7-sub-16-mma-dimension", "shared", "A7 sub 16 MMA dimension"),
        ("cutile-tma-conditions", "cutile-dsl", "TMA conditions"),
        ("solo", "shared", "Solo"),
    ],
)
def test_labels(id_, scope, wanted, site):
    meta = site.catalogue.patterns[0].pattern
    assert label(meta.model_copy(update={"id": id_, "scope": scope})) == wanted


def test_links_of_the_catalogue_resolve(site, pages):
    assert list(dead_links(catalogue.pages(site), pages)) == []


def test_backlinks_to_versions(site):
    found, keys = by_path(site), {version.key for version in site.versions}
    for document in site.catalogue.patterns:
        meta = document.pattern
        versions = found[pattern_path(meta)].content.split("\n## Versions\n")[1]
        versions = versions.split("\n## ")[0].replace("&#95;", "_")
        for key in (*meta.used_by, *meta.violated_by):
            assert key in keys
            page = kernels.version_page(registry.find(*key.split()))
            assert f"[{key}](../../{page})" in versions


def test_relations_run_both_ways(site):
    found = by_path(site)
    metas = [document.pattern for document in site.catalogue.patterns]
    pairs = {(meta.id, other) for meta in metas for other in meta.interacts}
    assert pairs
    known = {meta.id: meta for meta in metas}
    for here, there in pairs:
        for one, other in ((here, there), (there, here)):
            tail = found[pattern_path(known[one])].content.split("\n## Versions\n")[1]
            assert f"{other}.md" in tail, f"{one} does not lead to {other}"


def test_overlays_stand_on_shared_pages_and_language_pages(site):
    found = by_path(site)
    for document in site.catalogue.patterns:
        for overlay in catalogue.overlays_of(site, document):
            scope = overlay.pattern.scope
            assert "## In a language" in found[pattern_path(document.pattern)].content
            assert f"{document.pattern.id}.md" in found[f"catalogue/{scope}/index.md"].content


def test_metrics_lead_to_patterns(site):
    content = by_path(site)[catalogue.METRICS_PAGE].content
    rows = {
        name: line
        for line in content.splitlines()
        for name in re.findall(r'^\| <span id="([^"]+)">', line)
    }
    for document in site.catalogue.patterns:
        meta = document.pattern
        for trigger in meta.triggers:
            assert f"{meta.id}.md) when `{trigger}`" in rows[trigger.metric]
        for name in meta.affects:
            assert f"{meta.id}.md" in rows[name]
    assert set(rows) <= set(metrics.catalogue())


def test_metrics_of_a_page_lead_to_their_row(tree):
    site = small_site(tree)
    content = by_path(site)["catalogue/optimizations/o1-group.md"].content
    assert "[`registers`](../metrics.md#registers) down" in content
    assert "[`spill_instructions`](../metrics.md#spill_instructions)` > 0`" in content
    assert "[`registers`](../metrics.md#registers)` >= 255 and num_worker_warps < 8`" in content


def test_evidence_follows_the_record(tree):
    before = {page.path: page.content for page in small_pages(small_site(tree))}
    tree.record(make_record("v1", static={"registers": 137}))
    after = {page.path: page.content for page in small_pages(small_site(tree))}
    assert before.keys() == after.keys()
    count = sum(text.count("168 registers") for text in before.values())
    assert count >= 3
    assert sum(text.count("137 registers") for text in after.values()) == count
    assert not any("168 registers" in text for text in after.values())
    moved = {path for path in before if before[path] != after[path]}
    assert moved == {
        "catalogue/optimizations/o1-group.md",
        "catalogue/anti-patterns/a1-spill.md",
        "records/static/sm_90/cutile/mla/flash_mla/v1.md",
    }
    # 200 registers before over 137 after; 168 made 1.19.
    assert "1.46x" in after["catalogue/optimizations/o1-group.md"]
    assert "1.19x" not in after["catalogue/optimizations/o1-group.md"]


def test_stale_evidence_is_marked(tree):
    tree.record(make_record("v1", sources={"x": "b" * 40}))
    content = by_path(small_site(tree))["catalogue/optimizations/o1-group.md"].content
    address = "../../records/static/sm_90/cutile/mla/flash_mla/v1.md#b1-static"
    assert f"168 registers]({address}) (stale)" in content


def test_links_of_a_planted_catalogue_resolve(tree):
    site = small_site(tree)
    made = small_pages(site)
    others = [catalogue.Page(path, "") for path in site.addresses.values()]
    others += [catalogue.Page(f"files/{name}.txt", "") for name in site.copied]
    assert list(dead_links(catalogue.pages(site), [*others, *made])) == []


HOSTILE = "<script>alert(1)</script>"


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        (PAGE, "title: Group heads", f'title: "{HOSTILE} <img src=x onerror=alert(1)>"'),
        (PAGE, "Always, at s=16", f"{HOSTILE} and [x](javascript:alert(1)), at s=16"),
        (PAGE, "note: only the hint differs", f'note: "{HOSTILE}"'),
        (PAGE, "quoted: it took 1594 us", f'quoted: "{HOSTILE} it took 1594 us"'),
        (PAGE, "external: A paper, 2025", f'external: "A paper{HOSTILE}, 2025"'),
        (PAGE, "  registers: down", f'  "{HOSTILE}": down'),
        (ANTI, "value: HMMA", f'value: "`{HOSTILE}`"'),
        (ANTI, "value: HMMA", f'value: "{HOSTILE}"'),
        (ANTI, "metric: mma_path", f'metric: "x`{HOSTILE}`"'),
        (ANTI, "Text about", f"<div onclick='alert(1)' markdown='1'>{HOSTILE}</div> Text about"),
        (ANTI, "Text about", f"![x](data:text/html,{HOSTILE}) Text about"),
        (ANTI, "Text about", '*x*{: onclick="alert(1)" } Text about'),
    ],
)
def test_nothing_of_a_page_runs(tree, file, old, new):
    tree.replace(file, old, new)
    made = small_pages(small_site(tree))
    for page in made:
        assert see(page).scripts == [], page.path
    shown = {page.path: page for page in made}
    assert any("alert(1)" in see(shown[path]).text for path in shown if "catalogue" in path)


def test_values_of_records_do_not_run(tree):
    tree.record(make_record("v1", static={"mma_path": f"{HOSTILE}|`x`"}))
    page = by_path(small_site(tree))["catalogue/optimizations/o1-group.md"]
    assert see(page).scripts == []
    assert HOSTILE in see(page).text


@pytest.mark.parametrize("text", ["a < 1 and b == x", "n >= 0.5", "mma_path == HMMA"])
def test_conditions_are_code(text):
    assert catalogue.span(text) == f"`{text}`"
    assert text in re.sub(r"&lt;", "<", re.sub(r"&gt;", ">", html_of(catalogue.span(text))))


@pytest.mark.parametrize("text", ["a`b", "a|b", "a == <b>", "&lt;script>", "x\ny"])
def test_conditions_that_could_end_the_code_are_words(text):
    assert "`" not in catalogue.span(text).replace("&#96;", "")


def test_a_page_that_cannot_be_rendered_is_named(tree):
    tree.replace(PAGE, "static registers }}", "static total_us }}")
    with pytest.raises(KnowledgeError, match=r"o1-group\.md: .*states no total_us"):
        catalogue.pages(small_site(tree))


def test_no_pattern_no_language(tree):
    (tree.root / ANTI).unlink()
    tree.replace(PAGE, "interacts: [a1-spill]\n", "")
    tree.replace(PAGE, "- [A1](../anti-patterns/a1-spill.md) is what it mends.", "None.")
    tree.replace(PAGE, "See [the other page](../anti-patterns/a1-spill.md#mechanism).", "None.")
    found = by_path(small_site(tree))
    assert "None yet." in found["catalogue/anti-patterns/index.md"].content
    assert not any("cutile" in path for path in found)


def test_a_text_beside_the_patterns_has_a_page(tree):
    tree.write("knowledge/when.md", "---\ntitle: When to leave\n---\n\n## The answer\n\nNow.\n")
    site = small_site(tree)
    (page,) = [page for page in small_pages(site) if page.source == "knowledge/when.md"]
    assert page.path == "catalogue/when.md"
    assert page.nav == ("Catalogue", "When to leave")
    assert page.content.startswith("# When to leave\n\n## The answer")
    assert site.link("index.md")("knowledge/when.md") == "catalogue/when.md"


@pytest.mark.slow
def test_other_words_of_a_text_and_of_a_devlog_reach_the_search(site):
    text = by_path(site)["catalogue/when-to-leave-cutile.md"].content
    assert '"cuTile vs CuTe DSL"' in text.split("---")[1]
    design = next(p for p in kernels.pages(site) if "/thin_mla/" in p.path)
    assert '"kernel for few heads"' in design.content.split("---")[1]
