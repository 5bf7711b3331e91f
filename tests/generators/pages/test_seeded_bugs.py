"""The page of seeded bugs: every bug with its arch, what reported it, and how kernels fared."""

from __future__ import annotations

from generators.pages import seeded_bugs
from mla_var3.emulator.seeded import BUGS, CLEAN, TABLE, Outcome, Report, Table
from tests.generators.planted import small_site

LISTED = """
[pair]
script = "x.py"
arch = "sm_100a"
[pair.bugs.no-tail]
find = "a"
put = "b"
kinds = ["cluster-exit"]
at = ["a"]
why = "it ends <b>early</b>"
"""
FOUND = Table(
    dsl="4.8.1",
    outcomes=(
        Outcome(
            kernel="pair", bug=CLEAN, source="x.py", arch="sm_100a", schedules=20, values="right"
        ),
        Outcome(
            kernel="pair",
            bug="no-tail",
            source="x.py",
            arch="sm_100a",
            values="right",
            expected=("strict",),
            reported=("strict",),
            report=Report(kind="cluster-exit", lines=("x.py:1",), text="cluster-exit: x"),
        ),
        Outcome(kernel="gone", bug="forgotten", source="x.py"),
    ),
)


def planted(tree, table: Table) -> None:
    """Put a list and a table into a checkout."""
    for path, text in ((BUGS, LISTED), (TABLE, table.model_dump_json())):
        (tree.root / path).parent.mkdir(parents=True, exist_ok=True)
        (tree.root / path).write_text(text, encoding="utf-8")


def test_a_bug_stands_with_its_arch_and_the_models_that_report_it(tree):
    planted(tree, FOUND)
    (page,) = seeded_bugs.pages(small_site(tree))
    assert page.nav == ("Results", "Seeded bugs")
    assert "| `pair` | sm_100a | 1 | 0 | 1 | right and clean, 20 schedules |" in page.content
    row = "| no tail | it ends &lt;b&gt;early&lt;/b&gt; | `cluster-exit` | no | yes | right |"
    assert row in page.content
    assert "forgotten" not in page.content
    assert seeded_bugs.places(small_site(tree)) == {TABLE.as_posix(): page.path}


def test_a_kernel_that_is_not_clean_is_said_to_be_so(tree):
    bad = FOUND.outcomes[0].model_copy(update={"found": {"strict": 2}, "schedules": 0})
    planted(tree, FOUND.model_copy(update={"outcomes": (bad, FOUND.outcomes[1])}))
    (page,) = seeded_bugs.pages(small_site(tree))
    assert "| right, with findings |" in page.content
    planted(tree, FOUND.model_copy(update={"outcomes": FOUND.outcomes[1:]}))
    (page,) = seeded_bugs.pages(small_site(tree))
    assert "| `pair` | sm_100a | 1 | 0 | 1 |\n" in page.content


def test_a_checkout_without_a_table_has_no_page(tree):
    assert seeded_bugs.pages(small_site(tree)) == []
    assert seeded_bugs.places(small_site(tree)) == {}
