"""The page of what others wrote and was run here: every run, its outcome and the reason."""

from __future__ import annotations

from generators import conformance
from mla_var3.emulator.conformance import Finding, Outcome, Table, write
from tests.generators.planted import small_site

FOUND = Finding(kind="race", message="shared 0x10 | is <b>read</b>", at="a.py:3")
TABLE = Table(
    dsl="4.8.1",
    cutlass="abc",
    memory_model="default",
    schedules=1,
    examples=[
        Outcome(example="x/good.py", arch="sm_90a", arguments="--m 1", status="passed",
                seconds=2, emulated_seconds=0.5, clusters=3),
        Outcome(example="x/bad.py", arch="sm_80", arguments="", status="found", seconds=2,
                reason="argued so", findings=[FOUND]),
    ],
)  # fmt: skip


def test_every_run_stands_with_its_outcome_and_why(tree):
    write(tree.root / conformance.EXAMPLES, TABLE)
    (page,) = conformance.pages(small_site(tree))
    assert "2 runs under the emulator: 1 passed, 1 found" in page.content
    good, bad = (line for line in page.content.splitlines() if ".py]" in line)
    assert "/abc/examples/python/CuTeDSL/x/good.py)" in good
    assert "| sm_90a | passed |" in good
    assert "| 0.50 | 3 |" in good
    assert "argued so; race: shared 0x10 &#124; is &lt;b&gt;read&lt;/b&gt;" in bad


def test_a_checkout_without_tables_has_no_page(tree):
    assert conformance.pages(small_site(tree)) == []
    assert conformance.places(small_site(tree)) == {}
