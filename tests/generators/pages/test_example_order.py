from __future__ import annotations

from generators.pages import attention_examples, example_order, learning_paths
from mla_var3.gpuless.tables import read
from mla_var3.paths import repo_root
from tests.generators.checking import see


def test_every_example_of_a_way_has_runs_in_the_record():
    ran = read(repo_root() / example_order.RECORD)
    folder = "examples/python/CuTeDSL/cute"
    cases = example_order._cases(ran, f"{folder}/hopper/kernel/dense_gemm/dense_gemm.py")
    assert {case.test.split()[0] for case in cases} == {
        "cute/hopper/kernel/dense_gemm/dense_gemm.py"
    }
    assert example_order._outcomes(cases) == f"{len(cases)} passed"
    assert example_order._outcomes([]) == "not run"


def test_a_section_names_each_example_in_order_with_its_outcome(site):
    whole = example_order.section(site, site.learning, lambda target: target)
    places = [
        whole.index(f"knowledge/examples/{key}.toml")
        for way in example_order.WAYS
        for key in way.examples
    ]
    assert places == sorted(places)
    assert "not run" not in whole
    assert "({" not in whole


def test_the_index_says_who_takes_which_and_runs_one_on_the_cpu(site):
    [index, *_] = learning_paths.pages(site)
    text = str(index.content)
    assert text.index("For a Hopper kernel") < text.index(example_order.TITLE)
    assert example_order.ANCHOR[1:] in see(index).anchors
    assert text.index(example_order.TITLE) < text.index("{ #paths }")
    assert "**For attention read 1 to 4, for latent decode (MLA) 1 to 5.**" in text
    assert "`fmha_bwd.py`" in text[: text.index("### For Hopper")]
    assert "$ nox -s adopt -- hopper-dense-gemm" in text


def test_attention_examples_are_listed_for_each_chip_without_helpers(site):
    told = attention_examples.text(site, site.link("examples.md"))
    rows = [line for line in told.splitlines() if ".py" in line]
    assert {row.split("|")[1].split(",")[0].strip() for row in rows} == set(
        attention_examples.CHIPS.values()
    )
    assert sum("mla_decode" in row for row in rows) == 2
    assert not any("helpers" in row or "mamba2" in row for row in rows)
