from __future__ import annotations

import pytest

from mla_var3.emulator import seeded
from mla_var3.errors import KnowledgeError, RecordError
from mla_var3.knowledge import metrics, render_evidence, render_measured
from mla_var3.knowledge.evidence import change_text, check_comparable, ratio_text
from mla_var3.knowledge.linting import lint

from .trees import AFTER, ANTI, BEFORE, DESIGNS, PAGE, make_record, timed_record

DESIGN = DESIGNS["flash_mla"]


def test_the_tables_of_a_page(tree):
    catalogue = tree.catalogue()
    text = render_evidence(catalogue.page("o1-group"), catalogue, lambda path: f"/site/{path}")
    pairs, single, quoted = text.split("\n\n")
    assert f"[200 registers](/site/{BEFORE}) (flash&#95;mla v0)" in pairs
    assert f"[168 registers](/site/{AFTER}) (flash&#95;mla v1)" in pairs
    assert "| 1.19x |" in pairs
    assert "sm&#95;90, b1" in pairs
    assert "only the hint differs" in pairs
    assert "[3 instructions]" in pairs
    assert "[0 instructions]" in pairs
    assert f"[HGMMA](/site/{AFTER})" in single
    assert "Note" not in single
    # The first column does not wrap: it holds something short.
    assert "| published | [A paper, 2025](https://example.org/paper) | up to" in quoted
    assert "| observed, unrecorded | one GPU, one day | it took 1594 us |" in quoted


def test_the_tables_follow_the_records(tree):
    """Nobody typed a number: what the record says is what the page says."""
    tree.record(make_record("v0", static={"registers": 123}))
    catalogue = tree.catalogue()
    text = render_evidence(catalogue.page("o1-group"), catalogue)
    assert "123 registers" in text
    assert "200 registers" not in text


def test_stale_records_are_marked(tree):
    tree.record(make_record("v0", sources={"x": "b" * 40}))
    catalogue = tree.catalogue()
    text = render_evidence(catalogue.page("a1-spill"), catalogue)
    assert f"]({BEFORE}) (stale)" in text
    assert f"]({AFTER}) (stale)" not in text


def test_quoted_words_cannot_carry_markup(tree):
    tree.replace(PAGE, "quoted: it took 1594 us", 'quoted: "<b>|[x](y) `1594 us` {{ evidence }}"')
    catalogue = tree.catalogue()
    text = render_evidence(catalogue.page("o1-group"), catalogue)
    assert "<b>" not in text
    assert "[x](y)" not in text
    assert "{{" not in text


def test_a_page_without_evidence_has_no_table(tree):
    catalogue = tree.catalogue()
    assert render_evidence(catalogue.texts[0], catalogue) == ""
    tree.replace(ANTI, "impact: medium", "impact: huge")
    broken = next(d for d in tree.catalogue().documents if d.name == ANTI)
    assert render_evidence(broken, tree.catalogue()) == ""


def test_missing_records_are_an_error(tree):
    tree.forget(AFTER)
    catalogue = tree.catalogue()
    with pytest.raises(RecordError):
        render_evidence(catalogue.page("o1-group"), catalogue)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"target": "static/sm_100"}, "target"),
        ({"mode": "ncu"}, "mode"),
        ({"toolchain": {"cuda-tile": "2"}}, "toolchain"),
        ({"problem": {"s": 1}}, "the problem: s"),
        ({"problem": {"s": 1, "t": 2, "n": 5}}, "the problem: s, t"),
    ],
)
def test_records_that_differ_otherwise_are_not_compared(changes, said):
    with pytest.raises(KnowledgeError, match=said):
        check_comparable(make_record("v0"), make_record("v1", **changes), ["registers"])


def test_records_may_differ_in_n_and_in_fields_of_one_design():
    check_comparable(
        make_record("v0", problem={"n": 1}),
        make_record("v1", problem={"n": 2, "splits": 4}),
        ["registers"],
    )


def test_two_languages_are_compared_where_they_share_their_tools():
    tools = {"torch": "2.11.0", "cuda-tile": "1.7.0"}
    before = make_record("v0").model_copy(update={"toolchain": tools})
    after = make_record("v1")
    kernel = after.kernel.model_copy(update={"language": "cute-dsl"})
    other = {"torch": "2.11.0", "nvidia-cutlass-dsl": "4.8.1"}
    after = after.model_copy(update={"kernel": kernel, "toolchain": other})
    check_comparable(before, after, ["registers"])
    newer = after.model_copy(update={"toolchain": {**other, "torch": "2.12.0"}})
    with pytest.raises(KnowledgeError, match="differ in toolchain"):
        check_comparable(before, newer, ["registers"])


def test_two_workloads_are_not_compared():
    before, after = make_record("v0"), make_record("v1")
    kernel = after.kernel.model_copy(update={"layer": "gemm"})
    with pytest.raises(KnowledgeError, match="differ in workload: mla and gemm"):
        check_comparable(before, after.model_copy(update={"kernel": kernel}), ["registers"])


@pytest.mark.parametrize("name", ["total_us", "achieved_gbps", "bound_fraction"])
def test_times_compare_within_one_run_only(name):
    before, after = timed_record("v0"), timed_record("v1")
    check_comparable(before, after, [name])
    other = after.model_copy(update={"run": "other"})
    with pytest.raises(KnowledgeError, match="two runs"):
        check_comparable(before, other, ["dram_bytes", name])
    check_comparable(before, other, ["dram_bytes"])


def test_measured_compares_with_the_version_before(tree):
    tree.record(timed_record("v0"))
    tree.record(timed_record("v1"))
    text = render_measured(DESIGN, "v1", tree.catalogue())
    assert "| Metric | v0 | v1 | Before over after | On |" in text
    assert "`registers` of main" in text
    assert "1.19x" in text
    assert "`total_us`" in text
    assert "nvidia-h200-sxm, b1" in text


def test_measured_of_the_first_version(tree):
    text = render_measured(DESIGN, "v0", tree.catalogue())
    assert text.startswith("| Metric | v0 | On |")
    assert "200 registers" in text


def test_measured_without_its_predecessors_record(tree):
    tree.forget(BEFORE)
    text = render_measured(DESIGN, "v1", tree.catalogue())
    assert "168 registers" in text
    assert "200 registers" not in text


def test_measured_without_records(tree):
    assert "No record" in render_measured(DESIGN, "v7", tree.catalogue())


@pytest.mark.parametrize(
    ("ratio", "text"), [(4.748, "4.75x"), (0.5, "0.5x"), (1234.0, "1230x"), (None, "\u2013")]
)
def test_ratios(ratio, text):
    assert ratio_text(ratio) == text


@pytest.mark.parametrize(
    ("name", "ratio", "text"),
    [
        ("total_us", 1.834, "1.8x faster"), ("total_us", 0.4762, "2.1x slower"),
        ("total_us", 1.001, "as fast"), ("registers", 0.5, "0.5x"),
        ("achieved_gbps", 0.5, "0.5x"), ("total_us", None, "\u2013"),
    ],
)  # fmt: skip
def test_changes_of_time_as_people_read_them(name, ratio, text):
    assert change_text(metrics.metric(name), ratio) == text


SEEDED = """[ring]
script = "examples/ring.py"

[ring.bugs.missing-wait]
find = "wait(x)"
put = "pass"
kinds = ["race"]
at = ["load"]
why = "no wait | at all"
"""


def with_a_seeded_bug(tree, reported=("default", "strict")):
    """A tree whose first page shows the report of a seeded bug."""
    outcome = seeded.Outcome(
        kernel="ring",
        bug="missing-wait",
        source="examples/ring.py",
        line=7,
        values="right",
        expected=("default", "strict"),
        reported=reported,
        report=seeded.Report(kind="race", lines=(), text="race: ```here``` {{ evidence }}"),
    )
    for name in (seeded.BUGS, seeded.TABLE):
        (tree.root / name).parent.mkdir(parents=True, exist_ok=True)
    (tree.root / seeded.BUGS).write_text(SEEDED)
    seeded.save([outcome], tree.root / seeded.TABLE)
    tree.replace(PAGE, "  - key: seen\n", "  - seeded: ring/missing-wait\n  - key: seen\n")
    return tree.catalogue()


def test_the_report_of_a_seeded_bug_is_shown_as_it_was_printed(tree):
    catalogue = with_a_seeded_bug(tree)
    text = render_evidence(catalogue.page("o1-group"), catalogue)
    assert "````text\nrace: ```here``` {{ evidence }}\n````" in text
    assert "```diff\n-wait(x)\n+pass\n```" in text
    assert "line 7: no wait &#124; at all." in text
    assert "no comparison of values finds it" in text


def test_a_seeded_bug_that_was_missed_is_no_evidence(tree):
    catalogue = with_a_seeded_bug(tree, reported=("strict",))
    with pytest.raises(KnowledgeError, match="has no report of ring/missing-wait"):
        render_evidence(catalogue.page("o1-group"), catalogue)
    assert "evidence-seeded" in {finding.check for finding in lint(catalogue)}
