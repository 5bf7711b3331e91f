"""The page of what others wrote and was run here: every run, its outcome and the reason."""

from __future__ import annotations

from generators.pages import suites
from mla_var3.gpuless.suites import Outcome
from mla_var3.gpuless.tables import Case, Found, Table
from tests.generators.planted import small_site

FOUND = Found(kind="race", message="shared 0x10 | is <b>read</b>", at="a.py:3")
TABLE = Table(
    suite="cutlass-examples",
    repository="https://x.org/cutlass",
    commit="abc",
    toolchain={"dsl": "4.8.1"},
    settings={"memory_model": "default"},
    cases=(
        Case(test="x/good.py --m 1", arch="sm_90a", outcome=Outcome.PASSED, seconds=2,
             emulated_seconds=0.5, clusters=3),
        Case(test="x/bad.py", arch="sm_80", outcome=Outcome.FOUND, seconds=2,
             explained="argued so", findings=(FOUND,)),
    ),
)  # fmt: skip


def test_every_run_stands_with_its_outcome_and_why(tree):
    path = tree.root / suites.RECORDS / "cutlass-examples.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(TABLE.model_dump_json(), encoding="utf-8")
    (page,) = suites.pages(small_site(tree))
    assert "2 runs under the emulator: 1 passed, 1 found" in page.content
    good, bad = (line for line in page.content.splitlines() if ".py]" in line)
    assert "/abc/examples/python/CuTeDSL/x/good.py)" in good
    assert "| sm_90a | passed |" in good
    assert "| 0.50 | 3 |" in good
    assert "argued so; race: shared 0x10 &#124; is &lt;b&gt;read&lt;/b&gt;" in bad


SUITE = """{"suite": "tiles", "repository": "https://x.org/tiles", "commit": "abc", "sample": 2,
"toolchain": {},
"files": [{"file": "a.py", "passed": 3, "refused": 0, "failed": 1, "skipped": 2}], "cases": [
{"test": "a.py::test_one", "outcome": "failed", "cases": 1, "reason": "no",
 "explained": "<b>so</b>"},
{"test": "a.py::test_two", "outcome": "skipped", "cases": 2, "reason": "none", "explained": ""}],
"left_out": [{"test": "a.py::test_big*", "reason": "It takes hours."}]}"""


def test_a_suite_stands_with_each_exception_and_its_reason(tree):
    folder = tree.root / suites.RECORDS
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tiles.json").write_text(SUITE, encoding="utf-8")
    (page,) = suites.pages(small_site(tree))
    assert (
        "| [tiles](https://x.org/tiles/tree/abc) | interpreter | 3 | 0 | 1 | 2 | 2 |"
        in page.content
    )
    assert "| `a.py::test_one` | 1 | failed | &lt;b&gt;so&lt;/b&gt; |" in page.content
    assert "| not run | It takes hours. |" in page.content
    assert "test_two" not in page.content


PEER = """{"peer": {"repository": "https://x.org/lib", "commit": "abc"}, "device": "", "of": 1200,
"cases": [{"case": "a", "outcome": "passed"}, {"case": "b", "outcome": "passed"},
{"case": "c", "outcome": "skipped", "reason": "needs <b>pages</b>"}]}"""


def test_tests_of_another_library_stand_with_how_many_of_them_ran(tree):
    folder = tree.root / suites.RECORDS
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "lib.json").write_text(PEER, encoding="utf-8")
    (page,) = suites.pages(small_site(tree))
    ran = "| [lib](https://x.org/lib/tree/abc) | emulator | 3 of 1,200 | 2 | 0 | 1 |"
    assert f"{ran} needs &lt;b&gt;pages&lt;/b&gt; |" in page.content


def test_a_checkout_without_tables_has_no_page(tree):
    assert suites.pages(small_site(tree)) == []
    assert suites.places(small_site(tree)) == {}
