"""The Learn track: its lessons print today what their pages say."""

from __future__ import annotations

import contextlib
import gc
import io
import runpy
import weakref
from pathlib import Path

import pytest

from generators.pages import lessons
from mla_var3.emulator import Options
from mla_var3.emulator.script import run_script
from mla_var3.errors import KnowledgeError
from mla_var3.interpreter.redirect import redirected
from tests.generators.checking import ROOT, see

COURSE = lessons.load(ROOT)
NUMBERS = range(1, len(COURSE.lessons) + 1)


@pytest.mark.slow
@pytest.mark.parametrize("number", NUMBERS)
def test_a_lesson_prints_what_its_page_shows(number):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), redirected():
        runpy.run_path(str(ROOT / lessons.script(number)), run_name="__main__")
    assert printed.getvalue() == (ROOT / lessons.script(number)).with_suffix(".txt").read_text()


@pytest.mark.parametrize("name", ["add_cutile", "add_cute"])
def test_a_first_kernel_runs_on_a_cpu_and_is_shown_whole(name, capsys):
    file = ROOT / f"examples/first/{name}.py"
    if name == "add_cute":
        done = run_script(file, (), Options(), "sm_90a")
        assert (done.ended.error, done.diagnostics) == (None, [])
    else:
        with redirected() as reports:
            runpy.run_path(str(file), run_name="__main__")
        assert [report.diagnostics for report in reports] == [[]]
    assert "right: True" in capsys.readouterr().out
    page = (ROOT / lessons.FOLDER / "first-kernel.md").read_text()
    assert f"``` {{ .python }}\n{file.read_text().rstrip()}\n```" in page


def test_a_look_inside_a_loop_prints_what_its_page_shows(capsys):
    with redirected() as reports:
        runpy.run_path(str(ROOT / "examples/first/see_inside.py"), run_name="__main__")
    assert [report.diagnostics for report in reports] == [[]]
    printed = capsys.readouterr().out
    assert printed.count("after tile") == 4
    command = "$ nox -s run -- examples/first/see_inside.py"
    assert f"{command}\n{printed}```" in (ROOT / "docs/interpreter.md").read_text()


def test_one_compile_serves_calls_with_other_lengths_and_numbers(tmp_path, capsys):
    file = ROOT / "examples/first/compile_once.py"
    done = run_script(file, (), Options(), "sm_90a")
    assert (done.ended.error, done.diagnostics) == (None, [])
    assert "compiled: 1" in capsys.readouterr().out
    # The tracer runs Python once per compile, and at each direct call.
    text = file.read_text().replace("    grid = (", '    print("traced")\n    grid = (')
    traced = tmp_path / "traced.py"
    traced.write_text(text)
    run_script(traced, (), Options(), "sm_90a")
    assert capsys.readouterr().out.count("traced") == 1
    called = "    launch(tensor, Float32(factor), block)\n    return x\n"
    start, end = text.index("    key = ("), text.index("    return x\n")
    traced.write_text(text[:start] + called + text[end + len("    return x\n") :])
    run_script(traced, (), Options(), "sm_90a")
    assert capsys.readouterr().out.count("traced") == 3


def test_a_static_layout_is_for_one_length(tmp_path):
    text = (ROOT / "examples/first/compile_once.py").read_text()
    assert ".mark_layout_dynamic()" in text
    static = tmp_path / "static.py"
    static.write_text(text.replace(".mark_layout_dynamic()", ""))
    done = run_script(static, (), Options(), "sm_90a")
    assert done.ended.error is not None or done.diagnostics


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "page", "starts", "says"),
    [
        ("autotune", "docs/glossary/autotuning.md", "import cuda.tile as ct", "fastest: ("),
        ("custom_op", "docs/serving/step.md", "@torch.library.custom_op", "right: True"),
    ],
)
def test_a_script_runs_and_its_lines_stand_on_its_page(name, page, starts, says, capsys):
    file = ROOT / f"examples/first/{name}.py"
    with redirected() as reports:
        runpy.run_path(str(file), run_name="__main__")
    assert says in capsys.readouterr().out
    assert [found for report in reports for found in report.diagnostics] == []
    text = file.read_text()
    lines = text[text.index(starts) :].partition("\n\n\n@torch.compile")[0].rstrip()
    assert f"``` {{ .python }}\n{lines}\n```" in (ROOT / page).read_text()


@pytest.mark.parametrize("name", ["adopted_mla.py", "adopted_mla_cute.py"])
def test_the_simplest_kernel_stands_whole_on_its_page(name):
    """`check` compares both files with torch in the tests of adopted kernels."""
    text = (ROOT / "examples" / name).read_text()
    page = (ROOT / lessons.FOLDER / "simplest-kernel.md").read_text()
    parts = [part.strip() for part in text.split("\n\n\n")]
    shown = [part for part in parts if part.startswith(("@", "def launch"))]
    assert len(shown) in (2, 3)
    assert "\n\n\n".join(shown) in page
    assert f"examples/{name}" in page


def test_the_accumulator_becomes_operand_a_as_the_glossary_shows():
    """The script itself runs with the other snippets of the references."""
    text = (ROOT / "examples/api/cute/fragments.py").read_text()
    start = text.index("@cute.jit\ndef as_operand_a")
    lines = text[start : text.index("\n\n", start)]
    assert f"``` {{ .python }}\n{lines}\n```" in (ROOT / "docs/glossary/fragment.md").read_text()


def test_gather4_is_shown_as_it_compiles():
    """The script itself compiles with the other snippets of the references."""
    text = (ROOT / "examples/api/cute/gather4.py").read_text()
    page = (ROOT / "docs/glossary/sparse-attention.md").read_text()
    for start, end in (
        ("@cute.jit\n", "    gather(atom"),
        ("    boxes = [", "    cute.arch.mbarrier_w"),
    ):
        lines = text[text.index(start) : text.index(end)].rstrip()
        assert f"``` {{ .python }}\n{lines}\n```" in page


def test_the_reference_of_paged_decode_is_torchs_attention(capsys):
    file = ROOT / "examples/first/paged_reference.py"
    runpy.run_path(str(file), run_name="__main__")
    assert "as torch's attention: True" in capsys.readouterr().out
    assert len(file.read_text().splitlines()) < 50


def test_marked_inputs_say_whose_numbers_were_read(capsys):
    file = ROOT / "examples/first/whose_numbers.py"
    runpy.run_path(str(file), run_name="__main__")
    page = (ROOT / "docs/messages/wrong-numbers.md").read_text("utf-8")
    section = page[page.index("{ #right-for-one-wrong-for-two }") :]
    assert f"\n{capsys.readouterr().out}```" in section
    shown = section.partition("``` { .python }\n")[2].partition("```")[0]
    for line in shown.splitlines():
        assert line.strip() in file.read_text("utf-8")


def test_a_compiled_function_is_held_by_nothing_but_the_caller(monkeypatch, tmp_path):
    cutlass = pytest.importorskip("cutlass")
    from cutlass.base_dsl import env_manager
    from cutlass.cute import compile as compiler
    from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream

    from tests.examples import dividing

    monkeypatch.setenv("CUTE_DSL_ARCH", "sm_90a")
    out = make_fake_compact_tensor(cutlass.Int32, (64,))
    # The DSL may have been told to keep PTX by who used it first in this process.
    kept = f"--dump-dir={tmp_path}"
    fn = compiler(dividing.by_constant, out, 8, make_fake_stream(), options=kept)
    held = weakref.ref(fn)
    del fn
    gc.collect()
    assert held() is None
    page = (ROOT / "docs/messages/compiles-again.md").read_text("utf-8")
    assert "CUTE_DSL_JIT_CACHE_MAX_ELEMS" in page
    assert '"JIT_CACHE_MAX_ELEMS"' in Path(env_manager.__file__).read_text("utf-8")


@pytest.mark.slow
def test_a_lesson_asks_before_it_tells(site):
    pages = {page.path: page for page in lessons.pages(site)}
    assert [page.nav[0] for page in pages.values()] == ["Learn"] * (
        len(lessons.TEXTS) + 1 + len(NUMBERS)
    )
    for number in NUMBERS:
        page = pages[f"learn/lessons/{number}.md"]
        seen = see(page)
        words = " ".join(seen.text.split())
        assert words.index("First a question") < words.index("Run it") < words.index("The answer")
        assert f"nox -s run -- {lessons.script(number)}" in words
        assert '??? success "The answer"' in page.content
        assert seen.scripts == []


def test_a_checkout_without_lessons(site, tmp_path):
    from dataclasses import replace

    bare = replace(site, root=tmp_path)
    assert lessons.pages(bare) == []
    assert lessons.places(bare) == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('title = "x"', "summary"),
        ('title = "x"\nsummary = "y"\n[[lessons]]\ntitle = "z"', r"lessons\.0\."),
        ("title = ", "lessons.toml"),
    ],
)
def test_lessons_that_are_not_sound(tmp_path, text, said):
    (tmp_path / lessons.LESSONS).mkdir(parents=True)
    (tmp_path / lessons.SOURCE).write_text(text)
    with pytest.raises(KnowledgeError, match=said):
        lessons.load(tmp_path)
