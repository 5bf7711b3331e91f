from __future__ import annotations

import re

import pytest

from mla_var3.errors import HyperMlaError, KnowledgeError, UnknownNameError
from mla_var3.knowledge import render
from mla_var3.knowledge.directives import Context, cited, is_block, render_directive, resolve
from mla_var3.knowledge.evidence import repo_path
from mla_var3.knowledge.pages import load_all

from .trees import AFTER, BEFORE, DEVLOG, PAGE, make_record


def on(tree, name, *arguments, page="o1-group"):
    catalogue = tree.catalogue()
    return render_directive(Context(catalogue.page(page), catalogue, repo_path), name, arguments)


def test_values_and_ratios(tree):
    assert on(tree, "record", AFTER, "registers") == f"[168 registers]({AFTER})"
    assert on(tree, "record", AFTER, "registers", "main") == f"[168 registers]({AFTER})"
    assert on(tree, "ratio", BEFORE, AFTER, "registers") == f"[1.19x]({AFTER})"
    assert on(tree, "ratio", BEFORE, AFTER, "registers", "main") == f"[1.19x]({AFTER})"


SERVED = ("cute_python/mla/flash_mla/v15", "library/mla/deepseek_flash_mla/v1", "3f3a6167b8be")


def test_a_mean_is_of_all_problems_that_a_run_timed_for_both():
    catalogue = load_all()
    context = Context(catalogue.devlogs["flash_mla@cute-dsl"], catalogue, repo_path)
    said = render_directive(context, "mean", (*SERVED, "total_us"))
    assert re.fullmatch(r"\[2 % less time\]\(results/\S+\) over 60 problems", said)
    with pytest.raises(KnowledgeError, match="run aaaa holds no problem of both"):
        render_directive(context, "mean", (*SERVED[:2], "aaaa", "total_us"))


def test_one_time_against_another_is_less_or_more_of_it():
    catalogue = load_all()
    context = Context(catalogue.devlogs["flash_mla@cute-dsl"], catalogue, repo_path)
    slug = "b8-h64-s4-t4096-p64-k512-page64-bf16-causal/event@361c9f2684aa"
    mine = f"results/nvidia-h200-sxm/cute_python/mla/flash_mla/v18/{slug}"
    other = f"results/nvidia-h200-sxm/library/mla/deepseek_flash_mla/v1/{slug}"
    assert render_directive(context, "takes", (mine, other, "total_us")) == (
        f"[1.3 % less time]({mine})"
    )
    assert "1.3 % more time" in render_directive(context, "takes", (other, mine, "total_us"))


def test_stale_values_are_marked(tree):
    tree.record(make_record("v1", sources={"x": "b" * 40}))
    assert on(tree, "record", AFTER, "registers").endswith("(stale)")
    assert on(tree, "ratio", BEFORE, AFTER, "registers").endswith("(stale)")


def test_figures_of_devices(tree):
    text = on(tree, "device", "nvidia-h200-sxm", "sm_count")
    assert text == "[132 SMs](knowledge/devices/nvidia-h200-sxm.toml)"


def test_computed_figures(tree):
    assert on(tree, "analysis", "mla", "flops-crossing") == "s = 171"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("nothing",), UnknownNameError),
        (("record", AFTER), KnowledgeError),
        (("evidence", "x"), KnowledgeError),
        (("ratio", BEFORE, AFTER, "mma_path"), KnowledgeError),
        (("ratio", BEFORE, AFTER, "spill_instructions"), KnowledgeError),
        (("ratio", BEFORE, BEFORE, "registers"), KnowledgeError),
        (("record", "results/none.json", "registers"), HyperMlaError),
        (("device", "nvidia-h200-sxm", "nothing"), UnknownNameError),
        (("measured",), KnowledgeError),
        (("analysis", "gemm", "map"), UnknownNameError),
        (("analysis", "mla", "nothing"), UnknownNameError),
    ],
)
def test_wrong_directives_are_errors(tree, arguments, error):
    with pytest.raises(error):
        on(tree, *arguments)


def test_a_page_is_rendered_whole(tree):
    catalogue = tree.catalogue()
    text = render(catalogue.page("o1-group"), catalogue, lambda path: f"/x/{path}")
    assert "{{" not in text
    assert "source:" not in text
    assert '[3.2x](https://example.org/paper "A paper, 2025: up to 3.2x faster' in text
    assert '[1594 us](#performance-evidence "one GPU, one day: it took 1594 us")' in text
    assert "(/x/knowledge/anti-patterns/a1-spill.md#mechanism)" in text
    assert "[168 registers](/x/results/" in text
    assert 'x = {"a": 1 < 2}' in text


def test_a_devlog_is_rendered_with_the_records_of_each_entry(tree):
    catalogue = tree.catalogue()
    text = render(catalogue.devlogs["flash_mla"], catalogue)
    first, second = text.split("### v1")
    assert "200 registers" in first
    assert "168 registers" not in first
    assert "168 registers" in second


def test_directives_can_be_overridden(tree):
    catalogue = tree.catalogue()
    text = render(
        catalogue.texts[0],
        catalogue,
        override=lambda name, args: "CHART" if args == ("mla", "devices") else None,
    )
    assert "CHART" in text
    assert "s = 171" in text


def test_code_is_left_as_it_is(tree):
    tree.replace(PAGE, "None known.", "`{{ evidence }}` and\n\n```\n[a](b.md) {{ x }} <b>\n```")
    catalogue = tree.catalogue()
    text = render(catalogue.page("o1-group"), catalogue)
    assert "`{{ evidence }}`" in text
    assert "[a](b.md) {{ x }} <b>" in text


def test_html_outside_code_is_escaped(tree):
    tree.replace(PAGE, "None known.", "<script>alert(1)</script> [x](javascript:alert(1))")
    catalogue = tree.catalogue()
    text = render(catalogue.page("o1-group"), catalogue)
    assert "<script" not in text
    assert "](javascript:" not in text


def test_a_citation_title_cannot_break_out(tree):
    tree.replace(PAGE, "quoted: it took 1594 us", "quoted: 'it took 1594 us\" onclick=x <b>'")
    catalogue = tree.catalogue()
    text = render(catalogue.page("o1-group"), catalogue)
    assert "1594 us' onclick=x &lt;b>\")" in text


def test_unknown_citations_and_directives_are_errors(tree):
    tree.replace(PAGE, "None known.", "[3x](source:nobody)")
    catalogue = tree.catalogue()
    with pytest.raises(KnowledgeError, match="nobody"):
        render(catalogue.page("o1-group"), catalogue)


def test_sources_of_a_text_without_table_have_no_anchor(tree):
    tree.write(DEVLOG, "---\ntitle: x\nevidence: [{key: a, observed: b, quoted: 3 us}]\n---\n\n"
               "[3 us](source:a)\n")  # fmt: skip
    catalogue = tree.catalogue()
    devlog = catalogue.devlogs["flash_mla"]
    assert "(# " in render(devlog, catalogue)
    assert cited(devlog, "b") is None
    tree.write(DEVLOG, "no front matter")
    assert cited(tree.catalogue().devlogs["flash_mla"], "a") is None


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("o2.md", "knowledge/optimizations/o2.md"),
        ("../workloads/mla.md#map", "knowledge/workloads/mla.md#map"),
        ("#here", f"{PAGE}#here"),
        ("../../docs/x.md", "docs/x.md"),
    ],
)
def test_relative_links(target, path):
    assert resolve(PAGE, target) == path


def test_blocks():
    assert is_block("evidence", ())
    assert is_block("analysis", ("mla", "map", "x"))
    assert not is_block("analysis", ("mla", "ridge", "x"))
    assert not is_block("analysis", ("mla",))
    assert not is_block("analysis", ("gemm", "map"))
    assert not is_block("record", ("a", "b"))
    assert not is_block("nothing", ())
