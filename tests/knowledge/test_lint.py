from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from mla_var3.errors import KnowledgeError
from mla_var3.knowledge.checks import CHECKS
from mla_var3.knowledge.linting import lint, only
from mla_var3.knowledge.pages import MAX_BYTES

from .trees import (
    AFTER,
    ANTI,
    BEFORE,
    DEVLOG,
    ENTRY,
    PAGE,
    TEXT,
    TEXT_TEXT,
    Tree,
    failed_record,
    make_record,
    timed_record,
)


@dataclass(frozen=True)
class Planted:
    """A fault: the check that must find it, and where."""

    check: str
    make: Callable[[Tree], None]
    file: str = PAGE
    at: str | int = 1
    says: str = ""
    #: Whether the check must find nothing else in the tree.
    alone: bool = True


def sub(old: str, new: str, file: str = PAGE) -> Callable[[Tree], None]:
    return lambda tree: tree.replace(file, old, new)


def add(text: str, file: str = PAGE) -> Callable[[Tree], None]:
    """Put text into the section Pitfalls."""
    return sub("None known." if file == PAGE else "Introduction.", text, file)


def write(name: str, text: str | bytes) -> Callable[[Tree], None]:
    return lambda tree: tree.write(name, text)


def link_out(tree: Tree) -> None:
    (tree.root.parent / "outside.md").write_text("---\ntitle: x\n---\n")
    (tree.root / "knowledge" / "out.md").symlink_to(tree.root.parent / "outside.md")


def unreadable(tree: Tree) -> None:
    (tree.root / "knowledge" / "gone.md").symlink_to(tree.root / "nowhere.md")


#: A record that nobody made.
GONE = AFTER.replace("/v1/", "/v7/")


def misplace_record(tree: Tree) -> None:
    tree.record(make_record("v1"), "results/static/sm_90/flash_mla/x.json")


def stale(tree: Tree) -> None:
    tree.record(make_record("v1", sources={"x": "b" * 40}))


def both(*steps: Callable[[Tree], None]) -> Callable[[Tree], None]:
    def make(tree: Tree) -> None:
        for step in steps:
            step(tree)

    return make


LESSON_FILE = "knowledge/learning-paths/first.toml"
EXAMPLE_FILE = "knowledge/examples/add.toml"
LESSON = """title = "First steps"
summary = "From nothing to a copy."

[[steps]]
example = "add"
teaches = "A copy."
look = ["The copy."]
patterns = ["o1-group"]

[[steps.questions]]
ask = "Who copies?"
answer = "Every thread."

[steps.exercise]
task = "How many?"
script = "count.py"
choices = ["3", "300"]
answer = "3"
why = "One and two."
"""
PIN = f"""address = "https://example.org/x"
tag = "v1.0.0"
commit = "{"0" * 40}"
license = "none"
folders = ["examples"]
"""
EXAMPLE = f"""title = "Elementwise add"
repository = "https://example.org/x"
path = "add.py"
commit = "{"0" * 40}"
topics = ["copies"]

[[annotations]]
line = 7
text = "The layout."
"""


def lesson(tree: Tree) -> None:
    tree.write(LESSON_FILE, LESSON)
    tree.write(EXAMPLE_FILE, EXAMPLE)
    tree.write("knowledge/learning-paths/exercises/count.py", "print(1 + 2)\n")
    tree.write("third_party/cutlass.toml", PIN)


COMPILES = 'title = "x"\nkernel = "x.py"\n[cases.a]\n'
COMPILED = (
    '{"sources": {"knowledge/compiles/gone.py": "x"}, "git": null, "compiles": [{"case": "a", '
    '"facts": {"language": "cutile-dsl", "kernel": "k", "arch": "sm_90"}}]}'
)
SECTION = "## Pitfalls\n\nNone known.\n\n"
MEASURED = "#### Measured\n\n{{ measured }}"

FAULTS = [
    # files
    Planted("file-readable", unreadable, "knowledge/gone.md"),
    Planted("file-readable", lambda tree: (tree.root / "knowledge" / "folder.md").mkdir(),
            "knowledge/folder.md"),
    Planted("file-size", write("knowledge/huge.md", "x" * (MAX_BYTES + 1)), "knowledge/huge.md"),
    Planted("file-encoding", write(TEXT, b"---\ntitle: x\n---\n\n\xff\n"), TEXT, 5, "not UTF-8"),
    Planted("file-encoding", write(TEXT, "---\ntitle: x\n---\na\0b\n"), TEXT, 4, "U+0000"),
    Planted("file-encoding", write(TEXT, "\ufeff" + TEXT_TEXT), TEXT, 1, "U+FEFF"),
    Planted("file-encoding", add("safe \u202e text"), PAGE, "\u202e", "U+202E"),
    Planted("file-location", write("knowledge/languages/note.md", TEXT_TEXT),
            "knowledge/languages/note.md"),
    Planted("file-location", link_out, "knowledge/out.md", says="out of the checkout"),
    Planted("file-location", sub("kind: optimization", "kind: anti-pattern"), PAGE, "kind:",
            "knowledge/anti-patterns/"),
    Planted("file-location", sub("scope: shared", "scope: cute-dsl"), PAGE, "kind:",
            "knowledge/languages/cute-dsl/optimizations/"),
    Planted("file-name", sub("id: o1-group", "id: o1-grouping"), PAGE, "id:"),
    # front matter
    Planted("front-matter-missing", write(TEXT, "# Regimes\n"), TEXT),
    Planted("front-matter-missing", write(TEXT, "---\ntitle: x\n"), TEXT),
    Planted("front-matter-yaml", sub("impact: high", "impact: [high"), PAGE, "regimes:"),
    Planted("front-matter-yaml", write(TEXT, "---\n- a\n---\nb\n"), TEXT, says="mapping"),
    Planted("front-matter-yaml", write(TEXT, "---\na: &x [1]\nb: *x\n---\nb\n"), TEXT,
            says="aliases"),
    Planted("front-matter-yaml", write(TEXT, "---\na: " + "[" * 5000 + "\n---\nb\n"), TEXT,
            says="brackets"),
    Planted("front-matter-yaml", write(TEXT, "---\na: " + "[" * 400 + "\n---\nb\n"), TEXT, 2,
            says="nested more than 100 deep"),
    Planted("front-matter-yaml", write(TEXT, "---\na:\n" + "- " * 4000 + "b\n---\nb\n"), TEXT, 3,
            says="nested more than 100 deep"),
    Planted("front-matter-yaml", write(TEXT, "---\na: 2026-13-45\n---\nb\n"), TEXT),
    Planted("front-matter-duplicate-key", sub("impact: high", "impact: high\nimpact: low"),
            PAGE, "impact: low"),
    Planted("front-matter-unknown-key", sub("impact: high", "impact: high\nimpakt: low"), PAGE,
            "impakt:"),
    Planted("front-matter-unknown-key", sub("    note: only", "    remark: only"), PAGE,
            "    remark:"),
    Planted("front-matter-missing-key", sub("impact: high\n", ""), PAGE, "id: o1", "'impact'"),
    Planted("front-matter-value", sub("impact: high", "impact: huge"), PAGE, "impact:"),
    Planted("front-matter-value", sub("[sm_90]", "[sm_70]"), PAGE, "archs:"),
    Planted("front-matter-value", sub("regimes: [decode, speculative]", "regimes: []"), PAGE,
            "regimes:"),
    Planted("front-matter-value", sub("https://example.org/paper", "http://example.org"), PAGE,
            "    address:"),
    Planted("front-matter-value", sub("https://example.org/paper", "https://x.org (a.md@1a)"),
            PAGE, "    address:"),
    Planted("front-matter-value", sub("https://example.org/paper", "https://x.org(a.md)"), PAGE,
            "    address:"),
    Planted("front-matter-value", sub("  - key: seen\n    observed: one GPU, one day",
                                      "  - key: seen\n    watched: one"), PAGE, "  - key: seen",
            "needs one of the keys"),
    Planted("front-matter-value", sub("since: 2026-11-21", "since: lately"), PAGE, "since:"),
    Planted("front-matter-number", sub("title: Group heads", "title: Group heads, 3x faster"),
            PAGE, "title:", "3x"),
    Planted("front-matter-number", sub("only the hint differs", "saves 32 registers"), PAGE,
            "    note:"),
    Planted("duplicate-id", lambda tree: tree.write(
        "knowledge/optimizations/o2-copy.md", tree.read(PAGE)),
        "knowledge/optimizations/o2-copy.md", "id: o1"),
    Planted("duplicate-title", sub("title: Spill registers", "title: Group Heads", ANTI), PAGE,
            "title:"),
    # sections
    Planted("section-missing", sub(SECTION, ""), PAGE, "## When", "'Pitfalls'"),
    Planted("section-unknown", sub("## Pitfalls", "## Traps"), PAGE, "## Traps"),
    Planted("section-twice", sub(SECTION, SECTION + "## Pitfalls\n\nAgain.\n\n"), PAGE,
            "## Pitfalls\n\nAgain."),
    Planted("section-order", both(sub(SECTION, ""), sub("## Mechanism", SECTION + "## Mechanism")),
            PAGE, "## Mechanism", "belongs before"),
    Planted("section-empty", sub("None known.\n", ""), PAGE, "## Pitfalls"),
    Planted("section-preamble", sub("## When", "First words.\n\n## When"), PAGE, "First words."),
    Planted("heading-level", sub("## When", "# Group heads\n\n## When"), PAGE, "# Group heads"),
    Planted("heading-level", add("#### Deep\n\nText."), PAGE, "#### Deep", "follows level 2"),
    Planted("heading-twice", add("### More\n\nText.\n\n### More\n\nLast."), PAGE,
            "### More\n\nLast."),
    Planted("evidence-not-rendered", sub("{{ evidence }}\n\n", ""), PAGE,
            "## Performance evidence"),
    Planted("evidence-not-rendered", write(TEXT, TEXT_TEXT.replace(
        "title: Regimes", "title: x\nevidence: [{key: a, observed: b, quoted: c}]")), TEXT,
        "They cross"),
    # running text
    Planted("active-content", add("<script>alert(1)</script>"), PAGE, "<script>", alone=False),
    Planted("active-content", add("a <IFRAME src=x>", DEVLOG), DEVLOG, "<IFRAME"),
    Planted("active-content", add("<b onclick=x>bold</b>"), PAGE, "<b ", alone=False),
    Planted("active-content", add("<!-- hidden -->"), PAGE, "<!--"),
    Planted("code-fence", add("```python\nx = 1"), PAGE, "```python\nx = 1", "never closed"),
    Planted("code-fence", add("  ```\nx\n  ```"), PAGE, "  ```", "multiple of four"),
    Planted("code-fence", add("``` {.python onclick=x}\nx\n```"), PAGE, "``` {", "not a language"),
    Planted("attribute-list", add("word{: onclick=alert(1) }"), PAGE, "word{"),
    Planted("attribute-list", add("# x { #id .cls onload=x }".replace("# x", "x")), PAGE, "x {"),
    Planted("formula-alone", add("It is\n$$n = 1$$\n\nwords."), PAGE, "$$n"),
    Planted("formula-alone", add("It is\n\n$$\nn = 1\n$$\nwords."), PAGE, "$$\nn"),
    Planted("formula-alone", add("It is $$n = 1$$."), PAGE, "It is $$"),
    Planted("snippet-include", add('--8<-- "secret.txt"'), PAGE, "--8<--"),
    Planted("link-scheme", add("[x](javascript:alert(1))"), PAGE, "[x]"),
    Planted("link-scheme", add("[x](http://example.org)"), PAGE, "[x]"),
    Planted("link-scheme", add("[x](//example.org)"), PAGE, "[x]"),
    Planted("link-scheme", add("[x][y]\n\n[y]: data:text/html,x"), PAGE, "[x][y]"),
    Planted("code-link-dead", sub("gained\n\n#### What changed\n\nText.",
                                  "gained\n\n#### What changed\n\nIt is [so](code:lazy).", DEVLOG),
            DEVLOG, "It is [so]", "no line that changed from v0 to v1 holds 'lazy'"),
    Planted("code-link-dead", sub("baseline\n\n#### What changed\n\nText.",
                                  "baseline\n\n#### What changed\n\nIt is [so](code:x.y).", DEVLOG),
            DEVLOG, "It is [so]", "v0 is the first version"),
    Planted("code-link-dead", add("[x](code:lazy)", DEVLOG), DEVLOG, "[x]", "stands in no entry"),
    Planted("code-link-dead", add("[x](code:lazy)"), PAGE, "[x]", "stands in no entry"),
    Planted("link-form", add("[x](code:a-b)"), PAGE, "[x]"),
    Planted("link-form", add("[x](java\nscript:alert(1))"), PAGE, "[x]"),
    Planted("link-form", add("[x](java&#115;cript:alert)"), PAGE, "[x]"),
    Planted("link-form", add("[x](<javascript:alert>)"), PAGE, "[x]"),
    Planted("link-form", add("[x]: ../secret"), PAGE, "[x]"),
    Planted("link-escape", add("text\n[x](../../../etc/passwd)"), PAGE, "[x]"),
    Planted("link-escape", add("[x](/etc/passwd)"), PAGE, "[x]"),
    Planted("link-escape", add("`../../secret`"), PAGE, "`../../"),
    Planted("link-dead", add("[x](gone.md)"), PAGE, "[x]"),
    Planted("link-dead", add("![x](gone.png)"), PAGE, "![x]"),
    Planted("link-anchor", add("[x](../anti-patterns/a1-spill.md#nowhere)"), PAGE, "[x]"),
    Planted("link-anchor", add("[x](#nowhere)"), PAGE, "[x]", "this page"),
    Planted("link-text", add("![](../anti-patterns/a1-spill.md)"), PAGE, "![]"),
    Planted("path-dead", add("see `kernels/cutile/mla/flash_mla/gone.py:12`"), PAGE, "see `kern"),
    Planted("number-without-source", add("It takes 12 us."), PAGE, "It takes"),
    Planted("number-without-source", add("It is\n3.2x as fast."), PAGE, "3.2x as"),
    Planted("number-without-source", add("`255 registers`"), PAGE, "`255"),
    Planted("number-without-source", add("```\n# 4.27 TB/s\n```"), PAGE, "# 4.27"),
    Planted("number-without-source", add("$4.27\\,\\text{TB/s}$"), PAGE, "$4.27"),
    Planted("number-without-source", add("grew by 25 %", DEVLOG), DEVLOG, "grew by"),
    Planted("table-number", add("| s | time (us) |\n| --- | --- |\n| 1 | 75.5 |"), PAGE, "| 1 |"),
    Planted("citation-unknown", add("[3.2x](source:nobody)"), PAGE, "[3.2x](source:nobody)"),
    Planted("citation-mismatch", add("[3.3x](source:paper)"), PAGE, "[3.3x]"),
    Planted("citation-mismatch", add("[3.2 us](source:paper)"), PAGE, "[3.2 us]"),
    Planted("citation-key-twice", sub("key: seen", "key: paper"), PAGE,
            "  - key: paper\n    observed"),
    Planted("quotation-formula", sub("quoted: up to 3.2x", "quoted: $64 \\times 2$, up to 3.2x"),
            PAGE, "    quoted: $64", "TeX"),
    Planted("directive-unknown", add("{{ figure 3 }}"), PAGE, "{{ figure"),
    Planted("directive-failed", add("{{ evidence | safe }}"), PAGE, "{{ evidence |"),
    Planted("pronoun-without-noun", add("- It is faster.\n"), PAGE, "- It is faster"),
    Planted("pronoun-without-noun", add("A CTA sends that one's keys.\n"), PAGE, "that one's"),
    Planted("pronoun-without-noun", add("A warp takes the other's weights.\n"), PAGE, "A warp"),
    Planted("pronoun-without-noun", add("A CTA adds what they left.\n"), PAGE, "A CTA adds"),
    Planted("long-sentence", add("A warp starts " + "word " * 45), PAGE, "A warp starts"),
    Planted("long-bullet", add("- start " + "word " * 80), PAGE, "- start"),
    Planted("directive-alone", add("here {{ analysis mla devices }}"), PAGE, "here {{"),
    Planted("directive-failed", add("{{ record results/x.json registers }}"), PAGE,
            "{{ record results/x"),
    Planted("directive-failed", add("{{ record results/../../x.json registers }}"), PAGE,
            "{{ record results/.."),
    Planted("directive-failed", add("{{ device nvidia-h200-sxm }}"), PAGE,
            "{{ device nvidia-h200-sxm }}"),
    Planted("directive-failed", add("{{ device nvidia-h300 sm_count }}"), PAGE,
            "{{ device nvidia-h300"),
    Planted("directive-failed", add("{{ analysis mla nothing }}"), PAGE, "{{ analysis"),
    Planted("directive-failed", add("{{ measured }}", DEVLOG), DEVLOG, "{{ measured"),
    # claims
    Planted("metric-unknown", sub("metric: spill_instructions\n", "metric: spil_instructions\n"),
            PAGE, "  - metric: spil_", "spill_instructions"),
    Planted("metric-unknown", sub("  registers: down", "  registres: down"), PAGE, "  registres:"),
    Planted("metric-unknown", sub("    metric: mma_path", "    metric: mma"), PAGE,
            "    metric: mma"),
    Planted("metric-unknown", sub("{metric: num_worker_warps", "{metric: warps"), PAGE,
            "      - {metric: warps"),
    Planted("trigger-comparison", sub("value: 255", "value: many"), PAGE, "  - metric: registers"),
    Planted("trigger-comparison", sub("value: 255", "value: true"), PAGE, "  - metric: registers"),
    Planted("trigger-comparison", sub('"==", value: HMMA', '">", value: HMMA', ANTI), ANTI,
            "  - {metric"),
    Planted("trigger-missing", sub(
        'triggers:\n  - {metric: mma_path, comparison: "==", value: HMMA}\n', "", ANTI), ANTI,
        "id: a1"),
    Planted("id-unknown", sub("interacts: [a1-spill]", "interacts: [a1-spill, a2-none]"), PAGE,
            "interacts:", alone=True),
    Planted("id-unknown", sub("interacts: [a1-spill]", "interacts: [a1-spill, o1-group]"), PAGE,
            "interacts:", "itself"),
    Planted("interaction-unexplained", sub("[A1](../anti-patterns/a1-spill.md)", "A1"), PAGE,
            "interacts:"),
    Planted("version-unknown", sub("used_by: [flash_mla v1]", "used_by: [flash_mla v7]"), PAGE,
            "used_by:"),
    Planted("version-unknown", sub("violated_by: [flash_mla v0]", "violated_by: [flash v0]"), PAGE,
            "violated_by:"),
    Planted("version-both-ways", sub("violated_by: [flash_mla v0]", "violated_by: [flash_mla v1]"),
            PAGE, "violated_by:"),
    Planted("version-unlisted", both(sub("used_by: [flash_mla v1]\n", ""), sub(
        "gained\n\n#### What changed\n\nText.",
        f"gained\n\n#### What changed\n\nAs in [O1](../../../../{PAGE}).", DEVLOG)),
        DEVLOG, "As in [O1]", "o1-group.md does not name flash_mla v1"),
    Planted("evidence-missing", lambda tree: tree.write(ANTI, _without_evidence(tree.read(ANTI))),
            ANTI, "id: a1"),
    Planted("evidence-path", sub(f"  - record: {AFTER}", f"  - record: results/../{AFTER}"), PAGE,
            "  - record:"),
    Planted("evidence-path", sub(f"  - record: {AFTER}", "  - record: /etc/passwd"), PAGE,
            "  - record:"),
    Planted("evidence-record-missing", sub(f"  - record: {AFTER}", f"  - record: {GONE}"),
            PAGE, "  - record:", "does not exist"),
    Planted("evidence-path", sub(f"  - record: {AFTER}", "  - record: results/no.json"), PAGE,
            "  - record:", "no address"),
    Planted("evidence-seeded", sub(f"  - record: {AFTER}\n    metric: mma_path",
                                   "  - seeded: no_kernel/no-bug"), PAGE, "  - seeded:"),
    Planted("evidence-compiled", sub(f"  - record: {AFTER}\n    metric: mma_path",
                                     "  - key: tiles\n    compiled: no-list"),
            PAGE, "    compiled:"),
    Planted("evidence-compiled-stale", both(
        both(write("knowledge/compiles/a.toml", COMPILES), write("results/compiles/a.json",
                                                                COMPILED)),
        sub(f"  - record: {AFTER}\n    metric: mma_path", "  - key: tiles\n    compiled: a")),
        PAGE, "    compiled:", "gone.py changed"),
    Planted("evidence-tested", sub(
        f"  - record: {AFTER}\n    metric: mma_path",
        "  - key: tiles\n    tested: tests/test_no.py::test_it\n    quoted: a"), PAGE,
        "    tested:", "no test"),
    Planted("evidence-metric", sub("    metric: mma_path", "    metric: total_us"), PAGE,
            "  - record:", "states no total_us"),
    Planted("evidence-metric", sub("    metric: mma_path", "    metric: mma_path\n    stage: tail"),
            PAGE, "  - record:", "unknown stage"),
    Planted("evidence-metric", lambda tree: tree.record(failed_record("v0")), PAGE, "  - before:",
            "the run failed", alone=False),
    Planted("evidence-pair", lambda tree: tree.record(make_record("v0", toolchain={})), PAGE,
            "  - before:", "toolchain", alone=False),
    Planted("evidence-pair", lambda tree: tree.record(make_record("v0", problem={"h": 16})), PAGE,
            "  - before:", "the problem: h", alone=False),
    Planted("evidence-pair", sub(f"before: {BEFORE}", f"before: {AFTER}", ANTI), ANTI,
            "  - before:", "same record"),
    Planted("evidence-direction", lambda tree: tree.record(
        make_record("v0", static={"registers": 100})), PAGE, "  - before:", "goes up",
        alone=False),
    Planted("evidence-direction", sub("registers: up", "registers: down", ANTI), ANTI,
            "  - before:"),
    Planted("evidence-basis", sub("basis: source-semantics", "basis: measured", ANTI), ANTI,
            "basis:"),
    Planted("evidence-stale", stale, PAGE, "    after:", "flash_mla v1", alone=False),
    Planted("record-unsound", write("results/x.json", "{}"), "results/x.json"),
    Planted("record-unsound", misplace_record,
            "results/static/sm_90/flash_mla/x.json", says="belongs in"),
    Planted("record-stale", stale, AFTER, says="flash_mla v1"),
    # learning paths and examples
    Planted("learning-file", write(LESSON_FILE, LESSON), LESSON_FILE,
            says="no knowledge/examples/add.toml"),
    Planted("learning-file", write(LESSON_FILE, "title = "), LESSON_FILE, says="cannot be read"),
    Planted("learning-file", both(lesson, sub("summary", "sumary", LESSON_FILE)), LESSON_FILE,
            says="sumary"),
    Planted("learning-file", both(lesson, sub("line = 7", "line = 0", EXAMPLE_FILE)), EXAMPLE_FILE,
            says="annotations.0.line"),
    Planted("learning-file", both(lesson, sub("add", "none", LESSON_FILE)), LESSON_FILE,
            says="no knowledge/examples/none.toml"),
    Planted("learning-pinned", both(lesson, sub("commit = \"0", "commit = \"1", EXAMPLE_FILE)),
            LESSON_FILE, says="pins v1.0.0"),
    Planted("learning-pinned", both(lesson, write("third_party/cutlass/.commit", "0" * 40)),
            LESSON_FILE, says="v1.0.0 has no add.py"),
    Planted("learning-pattern", both(lesson, sub("o1-group", "o1-none", LESSON_FILE)),
            LESSON_FILE, says="'o1-none'"),
    Planted("learning-place", both(lesson, sub('example = "add"', 'version = "nothing v9"',
            LESSON_FILE)), LESSON_FILE, says="design 'nothing'"),
    Planted("learning-number", both(lesson, sub("A copy", "Takes 12 us", LESSON_FILE)),
            LESSON_FILE, says="12 us"),
    # devlogs
    Planted("devlog-missing", lambda tree: (tree.root / DEVLOG).unlink(), DEVLOG),
    Planted("devlog-version-without-entry", lambda tree: tree.write(
        DEVLOG, tree.read(DEVLOG).split("### v1")[0]), DEVLOG, "Introduction."),
    Planted("devlog-entry-without-version", lambda tree: tree.write(
        DEVLOG, tree.read(DEVLOG) + "\n" + ENTRY.format(version="v2", verdict="x")), DEVLOG,
        "### v2"),
    Planted("devlog-heading", sub("### v1: negative: nothing", "### Version 1: nothing", DEVLOG),
            DEVLOG, "### Version 1"),
    Planted("devlog-heading", sub("### v0", "## Part\n\n### v0", DEVLOG), DEVLOG, "## Part"),
    Planted("devlog-order", both(sub("### v0", "### v9", DEVLOG), sub("### v1", "### v0", DEVLOG),
                                 sub("### v9", "### v1", DEVLOG)), DEVLOG, "### v0"),
    Planted("devlog-section-missing", sub("#### Predicted\n\nText.\n\n#### Falsified by",
                                          "#### Falsified by", DEVLOG), DEVLOG, "### v0",
            "'Predicted'", alone=False),
    Planted("devlog-section-unknown", sub("#### Insights", "#### Thoughts", DEVLOG), DEVLOG,
            "#### Thoughts", alone=False),
    Planted("devlog-section-order", sub("#### Why\n\nText.\n\n#### Predicted",
                                        "#### Predicted\n\nText.\n\n#### Why", DEVLOG), DEVLOG,
            "#### Why", alone=False),
    Planted("devlog-section-empty", sub("#### Why\n\nText.\n", "#### Why\n", DEVLOG), DEVLOG,
            "#### Why", alone=False),
    Planted("devlog-not-rendered", sub(MEASURED, "#### Measured\n\nFast.", DEVLOG), DEVLOG,
            "#### Measured", alone=False),
]  # fmt: skip


def _without_evidence(text: str) -> str:
    start, end = text.index("evidence:\n"), text.index("violated_by:")
    return text[:start] + text[end:]


def test_clean_tree_has_no_findings(tree):
    assert tree.lint() == []


def test_sound_learning_paths_have_no_findings(tree):
    lesson(tree)
    assert tree.lint() == []


def test_each_fault_of_a_learning_path_is_found(tree):
    lesson(tree)
    tree.replace(LESSON_FILE, "summary", "sumary")
    tree.write("knowledge/examples/broken.toml", "title =")
    found = [(f.file, f.message.split(":")[0]) for f in tree.lint()]
    assert found == [
        ("knowledge/examples/broken.toml", "cannot be read"),
        (LESSON_FILE, "sumary"),
        (LESSON_FILE, "summary"),
    ]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.check)
def test_fault_is_found_with_file_line_and_check(tree, fault):
    fault.make(tree)
    found = [f for f in tree.lint() if f.check == fault.check]
    line = fault.at if isinstance(fault.at, int) else tree.line(fault.file, fault.at)
    hits = [f for f in found if f.file == fault.file and fault.says in f.message]
    assert line in [f.line for f in hits], found
    if fault.alone:
        assert {f.file for f in found} == {fault.file}
    for finding in found:
        assert finding.message
        assert "\n" not in finding.message
        assert str(finding).startswith(f"{finding.file}:{finding.line}: {finding.severity}: ")


def test_every_check_has_a_planted_fault():
    assert {fault.check for fault in FAULTS} == {check.id for check in CHECKS}


def test_check_ids_are_unique_and_documented():
    ids = [check.id for check in CHECKS]
    assert len(ids) == len(set(ids))
    assert all(type(check).__doc__ for check in CHECKS)


def test_warnings_are_only_about_stale_records(tree):
    stale(tree)
    assert {f.check for f in tree.lint() if f.severity == "warning"} == {
        "evidence-stale",
        "record-stale",
    }


def test_every_finding_of_a_ruined_page_comes_back(tree):
    """One fault does not hide another in the same file."""
    tree.replace(PAGE, "None known.", "It takes 12 us. <b>x</b> [x](gone.md)")
    checks = {f.check for f in tree.lint()}
    assert {"number-without-source", "active-content", "link-dead"} <= checks


def test_body_of_a_page_with_bad_front_matter_is_still_checked(tree):
    tree.replace(PAGE, "impact: high", "impact: huge")
    tree.replace(PAGE, "None known.", "<script>")
    checks = {f.check for f in tree.lint()}
    assert {"front-matter-value", "active-content"} <= checks


@pytest.mark.parametrize(
    "text",
    [
        "Comparisons such as a < b and 3 <= n are fine.",
        "<https://example.org/x> is an autolink.",
        "`<script>` in code is text.",
        "```html\n<script>alert(1)</script>\n```",
        "Sums $\\sum_{i=0}^{n} {x = 1}$ are formulas.",
        "Sums\n\n$$\\sum_{i=0}^{n}$$\n\nare formulas,\n\n$$\nx = 1\n$$\n\nall of them.",
        "[a](https://example.org/a_(b)) and [s](source:paper).",
        "At s=16, t=4096, 64x512 tiles, 132 blocks, 128 heads and sm_90.",
        "| s | us |\n| --- | --- |\n| 1 | [1594 us](source:seen) |",
        "`results/<device>/x.json` and `kernels/*/x.py` are placeholders.",
        "[here](#mechanism), [`code`](#mechanism) and [folder](../anti-patterns).",
        "```python\nx = f'{{a}}'\n```",
    ],
)
def test_sound_text_is_not_refused(tree, text):
    tree.replace(PAGE, "None known.", text)
    assert tree.lint() == []


@pytest.mark.parametrize(
    ("basis", "ok"),
    [
        ("measured", True),
        ("static", True),
        ("external", True),
        ("single-observation", True),
        ("source-semantics", True),
    ],
)
def test_basis_is_borne_out_by_any_fitting_evidence(tree, basis, ok):
    tree.replace(PAGE, "basis: static", f"basis: {basis}")
    assert (tree.lint() == []) is ok


def test_language_pages_need_no_trigger(tree):
    text = tree.read(ANTI).replace("scope: shared", "scope: cutile-dsl")
    text = (
        text.replace('triggers:\n  - {metric: mma_path, comparison: "==", value: HMMA}\n', "")
        .replace("a1-spill", "cutile-spill")
        .replace("Spill registers", "Spill in cuTile")
    )
    tree.write("knowledge/languages/cutile-dsl/anti-patterns/cutile-spill.md", text)
    assert tree.lint() == []


def test_measured_record_bears_out_measured_basis(tree):
    name = tree.record(timed_record("v1"))
    tree.replace(ANTI, "basis: source-semantics", "basis: measured")
    tree.replace(ANTI, "violated_by:", f"  - {{record: {name}, metric: total_us}}\nviolated_by:")
    assert tree.lint() == []


@pytest.mark.slow
def test_pages_of_hostile_size_are_linted_in_time(tree):
    """No expression of the checks goes wild on repeated characters."""
    for index, text in enumerate(("`" * 20000, "[" * 20000, "{{ " * 9000, "<" * 30000,
                                  "1" * 30000, "$" * 30001, "|" * 20000, "> " * 9000,
                                  "a_" * 15000, "\\" * 30000)):  # fmt: skip
        tree.write(f"knowledge/t{index}.md", f"---\ntitle: x\n---\n\n{text}\n")
    start = time.monotonic()
    tree.lint()
    assert time.monotonic() - start < 20


def test_code_is_the_text_of_a_link(tree):
    tree.replace(PAGE, "None known.", "See [`x`](../anti-patterns/a1-spill.md).")
    assert not [finding for finding in tree.lint() if finding.check == "link-text"]


def test_only_keeps_findings_below_the_paths(tree):
    tree.replace(PAGE, "None known.", "12 us")
    tree.replace(DEVLOG, "Introduction.", "12 us")
    catalogue = tree.catalogue()
    findings = lint(catalogue)
    assert {f.file for f in only(findings, catalogue, [tree.root / "kernels"])} == {DEVLOG}
    assert {f.file for f in only(findings, catalogue, [tree.root / PAGE])} == {PAGE}
    assert only(findings, catalogue, [tree.root]) == findings
    with pytest.raises(KnowledgeError, match="does not exist"):
        only(findings, catalogue, [tree.root / "gone"])
    with pytest.raises(KnowledgeError, match="outside"):
        only(findings, catalogue, [tree.root.parent])


def test_findings_are_ordered_by_file_and_line(tree):
    tree.replace(PAGE, "None known.", "12 us and\n\n13 us")
    tree.replace(ANTI, "Text about thread blocks.", "14 us")
    keys = [(f.file, f.line) for f in tree.lint()]
    assert keys == sorted(keys)
    assert len(keys) == 3
