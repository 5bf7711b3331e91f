import os
import subprocess
import sys

import pytest

from mla_var3.errors import KnowledgeError, UnknownNameError, UsageError
from mla_var3.examples import store
from mla_var3.examples.__main__ import main
from mla_var3.examples.model import Annotation
from tests.languages.cute.conftest import needs_dsl


@pytest.fixture
def indexed(root, tree, capsys):
    assert main(["index", "--no-compile"]) == 0
    capsys.readouterr()
    return root


def test_reading_without_compiling(root, tree, capsys):
    assert main(["index", "--no-compile"]) == 0
    said = capsys.readouterr().out
    assert "4 examples, 0 compiled, 4 files written" in said
    scale = store.read(root)["ampere-scale"]
    assert scale.kernels == ("kernel",)
    assert scale.length == len(scale_text(tree).splitlines())
    assert [each.pattern for each in scale.checklist] == ["boundary-handling"]
    (line,) = scale.checklist[0].lines
    assert "elem_less" in scale_text(tree).splitlines()[line - 1]


def scale_text(tree):
    return tree.file("cute/ampere/kernel/scale/scale.py").read_text()


def test_no_line_of_an_example_is_kept(indexed, tree):
    kept = "\n".join(p.read_text() for p in (indexed / store.FOLDER).iterdir())
    for line in scale_text(tree).splitlines():
        if len(line.strip()) > 30:
            assert line.strip() not in kept


def test_words_stay_and_notes_of_another_text_go(indexed, tree, capsys):
    old = store.read(indexed)["ampere-scale"]
    notes = (Annotation(line=1, text="note"),)
    words = old.model_copy(update={"goal": "A goal.", "title": "T", "annotations": notes})
    store.write(indexed, "ampere-scale", words)
    assert main(["index", "--no-compile", "cute/ampere"]) == 0
    assert store.read(indexed)["ampere-scale"] == words
    tree.file("cute/ampere/kernel/scale/scale.py").write_text("x = 1\n")
    assert main(["index", "--no-compile", "ampere-scale"]) == 0
    new = store.read(indexed)["ampere-scale"]
    assert (new.goal, new.title, new.annotations, new.length) == ("A goal.", "T", (), 1)


def test_an_example_that_left_the_tree_is_told(indexed, tree, capsys):
    tree.file("experimental/primitives/quiet.py").unlink()
    assert main(["index", "--no-compile"]) == 0
    assert "primitives-quiet.toml: its example is not in v1.2.3" in capsys.readouterr().out


def test_show(indexed, capsys):
    for name in ("ampere-scale", "cute/ampere/kernel/scale/scale.py"):
        assert main(["show", name]) == 0
        said = capsys.readouterr().out
        assert "Boundary handling" in said
        assert "not compiled yet" in said


def test_extract_starts_a_page(indexed, capsys):
    assert main(["extract", "ampere-scale", "--pattern=boundary-handling", "--page=edges"]) == 0
    page = indexed / "knowledge/languages/cute-dsl/optimizations/edges.md"
    text = page.read_text()
    assert capsys.readouterr().out == f"wrote {page.relative_to(indexed)}\n"
    assert text.startswith("---\nid: edges\n")
    assert "## Mechanism" in text
    assert "#L" in text
    with pytest.raises(KnowledgeError, match=r"edges.md exists; choose another --page"):
        main(["extract", "ampere-scale", "--pattern=boundary-handling", "--page=edges"])


def test_an_extracted_page_has_sound_front_matter_and_all_sections(indexed):
    import frontmatter

    from mla_var3.knowledge import schema

    main(["extract", "ampere-scale", "--pattern=boundary-handling", "--page=edges"])
    page = frontmatter.load(str(indexed / "knowledge/languages/cute-dsl/optimizations/edges.md"))
    assert schema.FrontMatter.model_validate(page.metadata).id == "edges"
    headings = [line[3:] for line in page.content.splitlines() if line.startswith("## ")]
    assert tuple(headings) == schema.SECTIONS


@pytest.mark.parametrize(
    ("argv", "error", "sentence"),
    [
        (["show", "hopper-nothing"], KnowledgeError, "no example is indexed as 'hopper-nothing'"),
        (["show", "ampere-scales"], KnowledgeError, r"did you mean ampere-scale\?"),
        (["extract", "ampere-scale", "--pattern=epilogue"], UnknownNameError,
         r"pattern of ampere-scale 'epilogue' \(known: boundary-handling\)"),
        (["extract", "ampere-scale", "--pattern=boundary-handling", "--page=A B"], KnowledgeError,
         "'A B' is not a page id"),
        (["index", "cute/nowhere"], KnowledgeError, "no example lies below cute/nowhere"),
        (["index", "--workers=-1"], UsageError, "must be positive"),
        (["lint"], UnknownNameError, "unknown command 'lint'"),
    ],
)  # fmt: skip
def test_each_fault_is_one_sentence(indexed, argv, error, sentence):
    with pytest.raises(error, match=sentence) as caught:
        main(argv)
    assert "\n" not in str(caught.value)


def test_show_before_index(root):
    with pytest.raises(KnowledgeError, match="holds no example; run `nox -s examples -- fetch`"):
        main(["show", "ampere-scale"])


def test_a_fault_ends_with_code_2(root):
    done = subprocess.run(
        [sys.executable, "-m", "mla_var3.examples", "index"],
        capture_output=True, text=True, check=False, env=os.environ,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: third_party/cutlass holds no fetched tree")
    assert done.stderr.count("\n") == 1


@needs_dsl
def test_examples_are_compiled_without_a_gpu(root, tree, capsys, monkeypatch, cute_cache_dir):
    monkeypatch.setenv("HYPERMLA_CACHE_DIR", str(cute_cache_dir))
    assert main(["index", "--workers=2"]) == 0
    assert "4 examples, 1 compiled" in capsys.readouterr().out
    found = store.read(root)
    (kernel,) = found["ampere-scale"].compiled.kernels
    assert (kernel.kernel, kernel.threads_per_block, kernel.mma_path) == ("kernel", 64, "none")
    assert kernel.registers > 0
    assert kernel.occupancy == "32 per SM, limited by threads"
    reasons = {name: one.compiled.reason for name, one in found.items() if one.compiled.reason}
    assert reasons["ampere-scale-neighbour"].startswith("a helper that other examples import")
    assert "no_such_module" in reasons["hopper-broken"]
    assert reasons["primitives-quiet"] == "it ends without compiling anything"
    assert not any("/" + "tmp" in reason for reason in reasons.values())
    assert main(["show", "ampere-scale"]) == 0
    assert "Compiled for sm_80" in capsys.readouterr().out
    before = (root / store.FOLDER / "ampere-scale.toml").read_text()
    assert main(["index", "cute/ampere"]) == 0
    assert (root / store.FOLDER / "ampere-scale.toml").read_text() == before


@pytest.fixture
def cute_cache_dir(tmp_path):
    return tmp_path / "cache"
