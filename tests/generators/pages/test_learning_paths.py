"""Learning paths and examples: nothing without files, pages and links with them."""

from __future__ import annotations

import re

import pytest

from generators.build.navigation import summary
from generators.pages import learning_paths
from generators.write.page import Page
from mla_var3.errors import KnowledgeError
from mla_var3.examples import course
from mla_var3.examples.learning import EXAMPLES, EXERCISES, PATHS, load
from tests.generators.checking import ROOT, dead_links, see
from tests.generators.planted import small_pages, small_site

COMMIT = "0123456789abcdef0123456789abcdef01234567"
EXAMPLE = f"""title = "Elementwise add"
repository = "https://github.com/NVIDIA/cutlass"
path = "examples/python/CuTeDSL/elementwise_add.py"
commit = "{COMMIT}"
topics = ["layouts", "copies"]

[[annotations]]
line = 40
text = "The *thread* layout; see [O2](../optimizations/o1-group.md)."

[[annotations]]
line = 7
text = "Imports `cute`."
"""
REST = """look = ["The copy."]
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
PATH = f"""title = "First steps"
summary = "From nothing to a copy."
prerequisites = ["CUDA's memory spaces"]
found_by = ["first copy"]
primer = "Loops run in [Python](../examples/add.toml)."

[[steps]]
example = "add"
compiled = "Counts are of instructions."
teaches = "Layouts and partitions."
{REST}
[[steps]]
example = "gemm"
teaches = "Pipelines."
found_by = ["ring of stages"]
prerequisites = ["add"]
{REST}"""


@pytest.fixture
def filled(tree):
    tree.write(f"{EXAMPLES}/add.toml", EXAMPLE)
    tree.write(f"{EXAMPLES}/gemm.toml", EXAMPLE.replace("Elementwise add", "A GEMM"))
    tree.write(f"{PATHS}/first.toml", PATH)
    tree.write(f"{EXERCISES}/count.py", "print(1 + 2)\n")
    return tree


def test_nothing_without_files(tree, site):
    for empty in (small_site(tree), site):
        if (empty.root / PATHS).is_dir() or (empty.root / EXAMPLES).is_dir():
            continue
        assert learning_paths.pages(empty) == []
        assert learning_paths.places(empty) == {}
    assert "all paths" not in summary(small_pages(small_site(tree)))


def test_pages_and_their_place(filled):
    site = small_site(filled)
    found = {page.path: page for page in learning_paths.pages(site)}
    assert set(found) == {
        "learning/index.md",
        "learning/first.md",
        "learning/examples/add.md",
        "learning/examples/gemm.md",
    }
    assert [page.nav[:1] for page in found.values()] == [("Learn",)] * 2 + [()] * 2
    short = [page for page in found.values() if "/examples/" in page.path]
    assert all('search: {"exclude": true}' in page.content for page in short)
    assert "[First steps](learning/first.md)" in summary(found.values())
    assert found["learning/first.md"].source == f"{PATHS}/first.toml"
    files = [Page(f"files/{name}.txt", b"") for name in site.copied]
    assert list(dead_links(found.values(), [*small_pages(site), *files])) == []


def test_a_path_is_its_steps_in_order(filled):
    found = {page.path: page for page in learning_paths.pages(small_site(filled))}
    text = found["learning/first.md"].content
    assert text.index("## 1. Elementwise add") < text.index("## 2. A GEMM")
    assert "Know before: CUDA's memory spaces." in text
    assert "Loops run in [Python](examples/add.md)." in text
    assert course.SETUP in text
    assert "Know before: [Elementwise add](examples/add.md)." in text
    assert f"https://github.com/NVIDIA/cutlass/blob/{COMMIT}/examples/python" in text


def test_a_path_and_its_steps_are_found_by_what_readers_say(filled):
    found = {page.path: page for page in learning_paths.pages(small_site(filled))}
    front = found["learning/first.md"].content.split("---")[1]
    assert 'found_by: ["first copy"]' in front
    assert 'sections: {"step-2": ["ring of stages"]}' in front


def test_a_step_has_all_its_parts(filled):
    found = {page.path: page for page in learning_paths.pages(small_site(filled))}
    first = found["learning/first.md"].content.partition("## 2.")[0]
    parts = (
        "What to look for", "- The copy.", "[Line 7](", "What the compiler makes of it",
        "Counts are of instructions.", "It was not compiled yet",
        "    How many?", '<input type="radio" name="step-1"> 300<', "path FIRST 1 --answer ANSWER",
        '??? success "What it prints, and why: choose first"', "    **3**. One and two.",
        '??? question "Who copies?"', "    Every thread.",
        "- [O1 group](../catalogue/optimizations/o1-group.md)", "Next: [A GEMM](#step-2)",
    )  # fmt: skip
    places = [first.index(part) for part in parts]
    assert places == sorted(places)
    assert 'data-path="first" data-steps="2"' in first


def test_a_pattern_leads_to_the_steps_that_show_it(filled):
    pages = {page.path: page for page in small_pages(small_site(filled))}
    text = pages["catalogue/optimizations/o1-group.md"].content
    assert "[First steps, step 1](../../learning/first.md#step-1)" in text


def test_an_example_is_annotated_in_order_of_lines(filled):
    found = {page.path: page for page in learning_paths.pages(small_site(filled))}
    text = found["learning/examples/add.md"].content
    assert text.index("### Line 7") < text.index("### Line 40")
    assert f"/blob/{COMMIT}/examples/python/CuTeDSL/elementwise_add.py#L40)" in text
    assert "[O2](../../catalogue/optimizations/o1-group.md)" in text
    assert "A step of [First steps](../first.md)." in text


def test_examples_without_a_path(filled):
    (filled.root / PATHS / "first.toml").unlink()
    paths = {page.path for page in learning_paths.pages(small_site(filled))}
    assert paths == {
        "learning/index.md",
        "learning/examples/add.md",
        "learning/examples/gemm.md",
    }


HOSTILE = "<script>alert(1)</script>"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Elementwise add", HOSTILE),
        ("The *thread* layout", f"{HOSTILE} [x](javascript:alert(1)) <img src=x onerror=alert(1)>"),
        ("Imports `cute`.", '*x*{: onclick=\\"alert(1)\\" }'),
    ],
)
def test_nothing_of_an_example_runs(filled, old, new):
    filled.replace(f"{EXAMPLES}/add.toml", old, new)
    for page in learning_paths.pages(small_site(filled)):
        assert see(page).scripts == [], page.path


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('path = "examples', 'path = "../examples', r"examples/add\.toml: path"),
        ('path = "examples', 'path = "/examples', r"examples/add\.toml: path"),
        ("https://github.com", "javascript://x", r"examples/add\.toml: repository"),
        (COMMIT, "main", r"examples/add\.toml: commit"),
        ("line = 7", "line = 0", r"examples/add\.toml: annotations\.1\.line"),
        ("topics", "topic", r"examples/add\.toml: topics"),
        ("[[annotations]]", "[[annotations", r"examples/add\.toml: cannot be read"),
    ],
)
def test_unsound_examples(filled, old, new, message):
    filled.replace(f"{EXAMPLES}/add.toml", old, new)
    with pytest.raises(KnowledgeError, match=message):
        load(filled.root)


def test_a_step_must_name_an_example(filled):
    filled.replace(f"{PATHS}/first.toml", '"gemm"', '"gone"')
    with pytest.raises(KnowledgeError, match=r"first\.toml: step 2 names the example 'gone'"):
        load(filled.root)


def test_an_answer_can_be_chosen(filled):
    filled.replace(f"{PATHS}/first.toml", 'choices = ["3", ', 'choices = ["4", ')
    with pytest.raises(KnowledgeError, match="the answer '3' is not among the choices"):
        load(filled.root)


def test_a_step_must_name_an_exercise(filled):
    (filled.root / EXERCISES / "count.py").unlink()
    with pytest.raises(KnowledgeError, match=r"step 1 names an exercise, but there is no .*count"):
        load(filled.root)


def test_a_file_that_is_no_text(filled):
    filled.write(f"{PATHS}/first.toml", b"\xff\xfe")
    with pytest.raises(KnowledgeError, match=r"first\.toml: cannot be read"):
        load(filled.root)


def test_the_documented_form_loads(tree):
    text = (ROOT / "docs/contributing/site.md").read_text()
    blocks = re.findall(r"```toml\n# (\S+)\n(.*?)```", text, re.DOTALL)
    for name, block in blocks:
        tree.write(name, block.replace("<40 hexadecimal digits>", COMMIT))
    tree.write(f"{EXERCISES}/first_exercise.py", "print(42)\n")
    found = load(tree.root)
    assert (len(found.paths), len(found.examples)) == (1, 1)


def test_a_place_in_the_kit_leads_to_its_words(site):
    (text,) = (p.content for p in learning_paths.pages(site) if p.path == "learning/d-hopper.md")
    address = "files/kernels/cute_python/kit/gemm_persistent.py.txt#:~:text=def%20place%28self"
    assert re.search(rf"\[kit/gemm_persistent.py, line \d+\]\(../{re.escape(address)}\)", text)
