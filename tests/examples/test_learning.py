"""Our learning paths: what they name is there, and their answers are what the scripts print."""

from __future__ import annotations

import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mla_var3.errors import KnowledgeError, UnknownNameError, UsageError
from mla_var3.examples import course, exercises, learning, pin
from mla_var3.examples.__main__ import main
from mla_var3.paths import repo_root

ROOT = repo_root()
PATHS = learning.load(ROOT)
STEPS = [pytest.param(step, id=f"{name}-{number}") for name, number, step in PATHS.steps()]
#: Exercises without the CuTe DSL and without a compiler; the others run by `path --check`.
PLAIN = ("rescales.py", "barriers_of_a_block.py")


@pytest.mark.parametrize("step", STEPS)
def test_a_step_has_a_subject_places_and_a_script(step):
    assert (ROOT / step.exercise.file).is_file()
    if step.version:
        places = [(course.place_of(ROOT, step.version, place), place) for place in step.places]
        for (source, line), place in places:
            assert place.find in (ROOT / source).read_text().splitlines()[line - 1]
        assert "registers per thread" in " ".join(course.facts(ROOT, PATHS, step))
    else:
        example = PATHS.examples[step.example]
        assert example.commit == pin.load(ROOT).commit
        assert PATHS.notes(step)
        assert all(note.line <= example.length for note in PATHS.notes(step))


def test_every_script_is_the_exercise_of_one_step():
    named = [step.exercise.script for _, _, step in PATHS.steps()]
    there = sorted(file.name for file in (ROOT / learning.EXERCISES).glob("*.py"))
    assert sorted(named) == there


@pytest.mark.parametrize("script", PLAIN)
def test_a_script_prints_the_answer_of_its_path(script):
    (step,) = [step for _, _, step in PATHS.steps() if step.exercise.script == script]
    assert exercises.same(exercises.computed(ROOT, step.exercise), step.exercise.answer)


@given(st.integers(-(10**9), 10**9), st.sampled_from(["{}", " {} ", "{:,}", "{}.0", "{:_}"]))
def test_an_answer_may_be_written_in_several_ways(number, form):
    assert exercises.same(form.format(number), str(number))
    assert not exercises.same(form.format(number), str(number + 1))


def test_figures_that_the_compiled_code_does_not_tell_are_left_out():
    kernels = [
        kernel
        for example in PATHS.examples.values()
        for kernel in (example.compiled.kernels if example.compiled else ())
    ]
    assert any(kernel.tcgen05_mma for kernel in kernels)
    assert [k.kernel for k in kernels if k.tcgen05_mma and k.pipeline_stages] == []
    dequantize, _ = PATHS.examples["blackwell-tutorial-gemm-fp16-gemm-6"].compiled.kernels
    assert dequantize.occupancy == "18 per SM, limited by registers"


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A checkout with our first path, its examples, and the scripts of all."""
    for folder in (learning.PATHS, learning.EXAMPLES):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    monkeypatch.setenv("HYPERMLA_ROOT", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


def script(small, text):
    (small / learning.EXERCISES / "bytes_per_stage.py").write_text(text)


def said(capsys):
    """What was printed, without where the terminal broke its lines."""
    return " ".join(capsys.readouterr().out.split())


def test_paths_in_the_terminal(small, capsys):
    assert main(["path"]) == 0
    assert "Path A: fundamentals" in said(capsys)
    assert main(["path", "A"]) == 0
    text = said(capsys)
    assert "5 dense_gemm_persistent: all of it together" in text
    assert "The commands run in a checkout of this project" in text
    assert "range_constexpr and const_expr run in Python" in text
    assert main(["path", "a", "1"]) == 0
    text = said(capsys)
    assert "Which threads issue the TMA loads" in text
    assert "Warp 0 alone issues both" not in text
    assert "line 136" in text
    assert "Read: examples/python/CuTeDSL" in text
    assert "with the example's default arguments. Counts are of instructions" in text
    path = PATHS.examples["blackwell-tutorial-gemm-fp16-gemm-0"].path
    (small / pin.FOLDER / path).parent.mkdir(parents=True)
    (small / pin.FOLDER / path).touch()
    assert main(["path", "a-fundamentals", "1", "--answers"]) == 0
    text = said(capsys)
    assert "Warp 0 alone issues both" in text
    assert "Read: third_party/cutlass/examples/python/CuTeDSL" in text


def test_an_answer_is_compared_with_what_the_script_works_out(small, capsys):
    script(small, "print('on the way')\nprint(384 * 64 * 2)\n")
    assert main(["path", "A", "1", "--answer", "49,152"]) == 0
    assert "right: 49152. A brings" in capsys.readouterr().out
    assert main(["path", "A", "1", "--answer", "24576"]) == 1
    text = said(capsys)
    assert "24576 is not right" in text
    assert "49152" not in text


def test_check_tells_an_answer_that_the_script_does_not_print(small, capsys):
    script(small, "print(1)\n")
    assert main(["path", "A", "1", "--check"]) == 1
    assert "bytes_per_stage.py: 1, the path says 49152" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("raise ValueError('no')\n", "bytes_per_stage.py failed: ValueError: no"),
        ("", "bytes_per_stage.py printed no answer"),
        ("import time; time.sleep(60)\n", "did not end within 0.2 s"),
    ],
)
def test_a_script_that_fails_is_one_sentence(small, text, sentence):
    script(small, text)
    exercise = PATHS.paths["a-fundamentals"].steps[0].exercise
    with pytest.raises(KnowledgeError, match=sentence) as caught:
        exercises.computed(small, exercise, timeout=0.2 if "sleep" in text else 60.0)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("argv", "error", "sentence"),
    [
        (["path", "Z"], UnknownNameError, "unknown path 'Z'"),
        (["path", "A", "6"], UsageError, "has steps 1 to 5"),
        (["path", "A", "--answer", "1"], UsageError, "--answer is for one step"),
    ],
)
def test_faults_of_a_reader(small, argv, error, sentence):
    with pytest.raises(error, match=sentence):
        main(argv)


def test_a_checkout_without_paths(tmp_path, monkeypatch):
    monkeypatch.setenv("HYPERMLA_ROOT", str(tmp_path))
    with pytest.raises(KnowledgeError, match="holds no path"):
        main(["path"])


def test_a_step_is_about_one_thing():
    step = PATHS.paths["d-hopper"].steps[1].model_dump()
    with pytest.raises(ValueError, match="one of the two"):
        learning.Step.model_validate({**step, "example": "x"})
    example = {**step, "version": None, "example": "x"}
    with pytest.raises(ValueError, match="places are of a version"):
        learning.Step.model_validate(example)


def test_what_shows_a_pattern():
    assert ("a-fundamentals", 2) in PATHS.steps_on("cute-persistent-tiles")
    assert PATHS.steps_on("no-such-pattern") == []
