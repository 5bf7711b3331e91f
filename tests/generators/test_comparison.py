"""Which design where: the cost model and the records side by side."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from generators import comparison, home, kernels
from generators.comparison import compare
from mla_var3 import devices
from mla_var3.knowledge import regimes
from tests.generators.checking import see
from tests.generators.commands import commands_of, understand
from tests.generators.runs import GPU, at, on, rows

H200 = devices.load(GPU)
CEILINGS = regimes.ceilings_of(GPU)
SHAPE = regimes.Shape(b=32)
#: The split latent kernel leads where little is asked, the mixed one behind it.
RUNS = (
    at("flash_mla_split_kv", "v1", 1, 130.0),
    at("flash_mla", "v2", 1, 230.0),
    at("mla_var6_plus", "v4", 1, 135.0),
    at("flash_attention", "v2", 1, 1900.0),
    at("flash_mla_split_kv", "v1", 16, 1600.0),
    at("mla_var6_plus", "v3", 16, 1900.0),
    at("mla_var6_plus", "v4", 16, 1850.0),
    at("flash_attention", "v2", 16, 1950.0),
)


def choice(site, s: int, *runs):
    found = compare(on(site, *runs), H200)
    return next(choice for choice in found.choices if choice.s == s)


def version(run) -> str:
    return f"{run.record.kernel.design} {run.record.kernel.version}"


# -- what designs compute --------------------------------------------------------------------------


def test_what_times_cover_is_what_the_plans_say(site):
    parts = comparison.what_times_cover(site, lambda name: name).split("; ")
    for design, versions in site.designs().items():
        plan = versions[0].plan_class()().resolve(694.0, 4270.0).shrunk()
        inputs = plan.prepare_inputs()
        width = plan.reference_fn(*inputs)["o"].shape[-1]
        (said,) = [part for part in parts if re.search(rf"/{design}\)", part)]
        assert ("still multiplies with Wv" in said) == (width == getattr(plan, "k", None))
        has_weights = any(x.shape == (plan.h, getattr(plan, "k", 0), plan.head_dim) for x in inputs)
        assert ("the product with Wv as well" in said) == has_weights
        assert ("all decompressed beforehand" in said) == (not hasattr(plan, "k"))


def test_what_times_cover_stands_wherever_times_do(pages):
    wanted = {"index.md", "kernels/index.md", "results/index.md", f"results/{GPU}.md"}
    holders = {p.path for p in pages if "Times of designs cover" in str(p.content)}
    assert {path for path in holders if path.endswith(".md")} == wanted


# -- which records are compared --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("batches", "wanted"),
    [
        ({4: (1, 16), 32: (1, 16)}, 32),
        ({4: (1, 2, 16), 32: (1, 16)}, 4),
        ({}, regimes.Shape().b),
    ],
)
def test_the_batch_is_the_one_with_most_query_counts(site, batches, wanted):
    runs = [at("flash_mla", "v1", s, 10.0, b=b) for b, counts in batches.items() for s in counts]
    assert compare(on(site, *runs), H200).shape.b == wanted


@pytest.mark.parametrize("other", [
    {"causal": True}, {"dtype": "fp16"}, {"h": 16}, {"t": 8192}, {"k": 256}, {"p": 32},
])  # fmt: skip
def test_other_problems_are_left_out(site, other):
    runs = [at("flash_mla", "v1", 1, 10.0), at("flash_mla", "v2", 1, 5.0, **other)]
    assert [version(run) for run in choice(site, 1, *runs).runs] == ["flash_mla v1"]


def test_a_stale_record_comes_last(site):
    runs = [at("flash_mla", "v2", 1, 5.0, stale=True), at("flash_mla", "v1", 1, 10.0)]
    assert version(choice(site, 1, *runs).runs[0]) == "flash_mla v1"


def test_query_counts_that_only_records_have_are_rows(site):
    found = compare(on(site, at("flash_mla", "v1", 6, 10.0)), H200)
    assert [c.s for c in found.choices] == sorted({6, *regimes.S_VALUES})


# -- which to use ----------------------------------------------------------------------------------


def test_what_was_measured_fastest_is_to_be_used(site):
    found = choice(site, 16, *RUNS)
    assert found.model.winner == "mla_var6_plus"
    assert found.advised == "flash_mla"
    assert version(found.estimates["flash_mla"].run) == "flash_mla_split_kv v1"
    assert found.estimates["flash_mla"].us == 1600.0


@settings(max_examples=20)
@given(factor=st.floats(0.5, 50), s=st.sampled_from((2, 4, 8, 32, 512)))
def test_a_constant_distance_from_the_floor_is_kept(site, factor, s):
    runs = [
        at(
            "flash_mla",
            "v1",
            q,
            factor * regimes.cell(SHAPE, q, 4096, CEILINGS).time_us["flash_mla"],
        )
        for q in (1, 16)
    ]
    found = choice(site, s, *runs)
    assert found.estimates["flash_mla"].us == pytest.approx(
        factor * found.model.time_us["flash_mla"]
    )
    assert not found.estimates["flash_mla"].measured
    assert [comparison.queries(run) for run in found.around] == ([1, 16] if s < 16 else [16])


def test_an_estimate_lies_between_its_neighbours(site):
    def over(s: int) -> float:
        found = choice(site, s, *RUNS)
        return found.estimates["mla_var6_plus"].us / found.model.time_us["mla_var6_plus"]

    assert over(1) < over(2) < over(4) < over(8) < over(16) == pytest.approx(over(32))
    assert over(4) == pytest.approx((over(1) * over(16)) ** 0.5)


def test_a_kernel_that_was_measured_elsewhere_can_be_the_one_to_use(site):
    runs = [*RUNS, at("mla_var6_plus", "v3", 32, 3000.0)]
    found = choice(site, 32, *runs)
    assert found.advised == "flash_attention"
    assert found.untimed == ["flash_mla", "flash_attention"]


def test_what_was_measured_nowhere_is_not_judged(site):
    found = choice(site, 512, at("flash_mla", "v1", 1, 10.0))
    assert found.advised == found.model.winner == "flash_attention"
    assert "flash_attention" not in found.estimates


# -- the home page ---------------------------------------------------------------------------------


def table(text: str) -> dict[int, list[str]]:
    found = rows(text.replace("&#95;", "_"), "## Which kernel to use")
    return {int(row[0]): row[1:] for row in found}


def test_home_shows_the_model_at_the_batch_of_the_records(site):
    for batch, runs in ((32, RUNS), (regimes.Shape().b, ())):
        text = home.pages(on(site, *runs))[0].content
        assert f"for {batch} sequences" in text
        for s, row in table(text).items():
            cell = regimes.cell(regimes.Shape(b=batch), s, comparison.CONTEXT, CEILINGS)
            assert cell.winner in row[2]
            assert [f"{cell.time_us[k]:,.0f} us" for k in regimes.KERNELS] == row[3:]


def test_home_answers_a_query_count_that_was_not_measured(site):
    text = home.pages(on(site, *RUNS))[0].content
    use, measured, *_ = table(text)[8]
    assert re.match(r"\*\*\[flash_mla_split_kv v1\]\(\S+\)\*\*, about 8\d\d us", use)
    assert measured.startswith("not measured; nearest: [flash_mla_split_kv v1](")
    assert measured.endswith("at s=1 and s=16")
    said = see(home.pages(on(site, *RUNS))[0]).text
    assert "s = 2, 4, 8: use flash_mla_split_kv v1. It is estimated from s = 1 and 16" in said


def test_home_says_where_measurement_disagrees(site):
    said = see(home.pages(on(site, *RUNS))[0]).text
    floor = regimes.cell(SHAPE, 16, 4096, CEILINGS).time_us["mla_var6_plus"]
    assert (
        "s = 16: use flash_mla_split_kv v1. It took 1,600 us, while mla_var6_plus v4 took "
        f"1,850 us against a floor of {floor:,.0f} us."
    ) in said
    agreeing = see(home.pages(on(site, at("flash_mla", "v1", 1, 60.0)))[0]).text
    assert "says otherwise" not in agreeing


def test_home_without_records_names_the_model_s_designs(site):
    for row in table(home.pages(on(site))[0].content).values():
        assert row[0] == f"**{row[2].partition(',')[0]}**"
        assert row[1] == "not measured"


def test_the_example_on_home_can_be_typed(site):
    new: set[str] = set()
    commands = list(commands_of(home.pages(site)[0].content))
    for command in commands:
        understand(command, new)
    latest = site.designs()[home.EXAMPLE][-1]
    assert (
        f"clone -- {latest.name} {kernels.next_version(site.designs()[home.EXAMPLE])}"
        in commands[0]
    )


# -- kernel pages ----------------------------------------------------------------------------------


def test_kernels_show_what_was_measured_beside_the_model(site):
    made = on(site, *RUNS)
    row = next(r for r in rows(kernels._index(made).content, "# Kernels") if "var6" in r[0])
    assert row[3:7] == ["[v4](mla_var6_plus/v4.md)", "[v4](mla_var6_plus/v4.md)",
                        "s = 2, 4, 8, 16, 32, 64", "no s measured"]  # fmt: skip
    h200, b200, _ = rows(
        kernels._design(made, "flash_mla_split_kv", made.designs()["flash_mla_split_kv"]).content,
        "## Regime",
    )
    assert h200[1:] == ["32", "s = 1", "s = 1, 16", "[v1](v1.md)"]
    assert b200[1] == str(regimes.Shape().b)
    assert b200[3:] == ["not measured", "not measured"]


def test_versions_that_lead_at_different_queries_are_all_named(site):
    runs = [at("mla_var6_plus", "v4", 1, 9.0), at("mla_var6_plus", "v3", 16, 9.0)]
    made = on(site, *runs)
    row = rows(
        kernels._design(made, "mla_var6_plus", made.designs()["mla_var6_plus"]).content, "## Regime"
    )[0]
    assert row[-1] == "[v3](v3.md) at s = 16; [v4](v4.md) at s = 1"
