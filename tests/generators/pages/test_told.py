"""Hand-written text that takes sentences and tables from records, and what a kernel is fed."""

from __future__ import annotations

import re

import pytest

from generators.pages import feeding, fitting, glossary, handwritten, told
from mla_var3.errors import KnowledgeError
from mla_var3.runtime import registry
from tests.generators.checking import ROOT, see


def test_a_name_becomes_what_it_stands_for(site):
    link = site.link("scope.md")
    text = told.filled(site, "docs/a.md", "Before {{ told which-gpu }} after", link)
    assert text.startswith("Before | Your card |")
    with pytest.raises(KnowledgeError, match=r"docs/a\.md: nothing is told of 'nothing'"):
        told.filled(site, "docs/a.md", "{{ told nothing }}", link)


def test_every_card_stands_in_the_table_with_what_compiles_for_it(site):
    table = fitting.cards(site, site.link("scope.md"))
    rows = [line for line in table.splitlines() if line.startswith("| [")]
    targets = [device for device in site.devices if device.is_compile_target]
    assert len(rows) == len({device.sm for device in targets})
    for device in targets:
        [row] = [row for row in rows if f"](devices/{device.key}.md)" in row]
        assert f"`{device.sm}`" in row
    hopper = next(row for row in rows if "`sm_90`" in row)
    assert "versions compile" in hopper
    assert re.search(r"H200: \[\d+ records\]\(results/nvidia-h200-sxm\.md\)", hopper)
    assert "none of the " in next(row for row in rows if "`sm_120`" in row)


def test_pages_of_docs_are_filled(site):
    pages = {page.path: str(page.content) for page in handwritten.pages(site)}
    # The page on the site's own making names the form itself, in capitals.
    assert "{{ told" not in "".join(pages.values()).replace("`{{ told NAME }}`", "")
    assert "| Your card |" in pages["scope.md"]
    assert "**Toolchain**" in pages["how-times-are-taken.md"]
    assert '"open a pull request"' in pages["contributing/index.md"]
    assert (ROOT / "CONTRIBUTING.md").read_text().startswith("# Contributing\n")


def test_a_version_says_what_it_is_fed():
    sparse = feeding.inputs_of(registry.find("sparse_mla"))
    assert sparse.startswith("**Inputs:** q `[b*s,1,h,k]`")
    assert "-1 where there is none" in sparse
    assert "**Outputs:** o `[b*s,1,h,k]`" in sparse
    gemm = feeding.inputs_of(registry.find("gemm"))
    assert "**Output:** c `[m,n]`" in gemm


def test_every_design_of_ours_says_what_it_is_fed_and_by_which_versions(site):
    link = site.link("kernels/mla/cute-dsl/flash_mla/index.md")
    for versions in site.designs().values():
        assert "**Inputs:**" in feeding.section(site, versions, link), versions[0].design_key
    paged = feeding.section(site, site.designs()["flash_mla@cute-dsl"], link)
    assert re.search(r"- \*\*v\d[^*]*\.\*\* \*\*Inputs:\*\* q `\[b,h,s,k\]`", paged)
    assert re.search(r"- \*\*v\d[^*]*\.\*\* \*\*Inputs:\*\* q `\[b,s,h,k\]`", paged)
    assert "which-decode-kernel.md)" in paged
    assert "serving/call.md)" in paged


def test_a_term_leads_to_where_it_is_taught(site):
    pages = {page.path: page for page in glossary.pages(site)}
    memory = str(pages["glossary/tensor-memory.md"].content)
    assert (
        "**Learn it:** [Tensor Memory and tcgen05: from mma.sync to a first tile](../learn/"
        in memory
    )
    assert "](../learn/hopper/tma.md)" in str(pages["glossary/mbarrier.md"].content)
    assert "[lesson 5, One register too many]" in str(pages["glossary/spill.md"].content)
    assert "Learn it" not in str(pages["glossary/energy.md"].content)
    assert see(pages["glossary/tensor-memory.md"]).scripts == []


def test_lines_of_the_first_kernel_to_read_are_its_source():
    text = (ROOT / "docs/learn/from-zero.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(.+?)` \|", text.partition("## 5. Read")[2], re.MULTILINE)
    source = registry.find("flash_mla", "v0", "cutile-dsl").path.read_text(encoding="utf-8")
    assert len(rows) == 10
    assert [line for line in rows if line not in source] == []
    places = [source.index(line) for line in rows]
    assert places == sorted(places)


def test_results_of_layout_algebra_are_checked_by_the_example():
    chapter = (ROOT / "knowledge/references/cute/layouts.toml").read_text(encoding="utf-8")
    rows = re.findall(r"^\|[^|]*\|[^|]*\| `([^`]+)` \|", chapter, re.MULTILINE)
    example = (ROOT / "examples/api/cute/algebra.py").read_text(encoding="utf-8")
    assert len(rows) == 13
    assert [result for result in rows if f'== "{result}"' not in example] == []
