"""What is traced is the same where places are kept, which takes half the time."""

import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

from mla_var3.languages.cute import compile as compiling
from mla_var3.languages.cute import tracing
from tests.languages.cute.conftest import needs_dsl


@needs_dsl
def test_a_kernel_compiles_to_the_same_text(tmp_path, monkeypatch):
    from mla_var3.languages.cute.signature import Dynamic
    from tests.languages.cute.kernels_for_tests import Scale

    x = torch.zeros(64)
    arguments = (Dynamic(x, (0,)), Dynamic(x, (0,)), 2.0)

    def compiled(name):
        found = compiling.compile_host(
            Scale(32), arguments, "sm_90", cache_dir=tmp_path / name, facts=False
        )
        assert found.error is None
        return found.files[compiling.PTX], found.files[compiling.HOST]

    kept = compiled("kept")
    monkeypatch.setattr(tracing, "keep_places", lambda _op: None)
    assert compiled("asked") == kept


def a_dsl(asked):
    op = ModuleType("op")
    op.ir = SimpleNamespace(Context=SimpleNamespace(current="one"))

    def frameinfo(frame):
        asked.append(frame.f_lineno)
        return [frame.f_lineno]  # A new object for each question.

    op._fast_frameinfo = frameinfo
    op._get_location_from_frame_info = lambda info: (op.ir.Context.current, info[0])
    return op


def test_each_instruction_is_asked_for_once_and_has_a_place_of_its_own():
    asked = []
    op = a_dsl(asked)
    tracing.keep_places(op)

    def here():
        return op._fast_frameinfo(sys._getframe(1))

    lines = [(here(), here()) for _ in range(3)]
    assert len(asked) == 2
    assert all(first is lines[0][0] and second is lines[0][1] for first, second in lines)
    assert lines[0][0] is not lines[0][1]


def test_equal_functions_of_two_files_are_told_apart():
    asked = []
    op = a_dsl(asked)
    op._is_framework_stack_frame = lambda frame: frame.f_code.co_filename == "library.py"
    tracing.keep_places(op)
    text = "import sys\ndef f(op): return op._is_framework_stack_frame(sys._getframe())\n"
    found = {}
    for file in ("library.py", "kernel.py"):
        names: dict = {}
        exec(compile(text, file, "exec"), names)
        found[file] = names["f"](op)
    assert found == {"library.py": True, "kernel.py": False}


def test_a_location_is_of_its_context():
    op = a_dsl([])
    tracing.keep_places(op)
    info = [7]
    assert op._get_location_from_frame_info(info) == ("one", 7)
    op.ir.Context.current = "other"
    assert op._get_location_from_frame_info(info) == ("other", 7)


def test_what_a_release_lacks_is_left_out():
    op = a_dsl([])
    del op._fast_frameinfo
    tracing.keep_places(op)
    assert not hasattr(op, "_fast_frameinfo")
    with pytest.raises(AttributeError):
        op._is_framework_stack_frame  # noqa: B018
