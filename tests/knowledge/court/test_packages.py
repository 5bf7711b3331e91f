"""Kernels of packages: how a launch is told, and what the table keeps."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mla_var3.errors import KnowledgeError
from mla_var3.knowledge.court import cases, packages
from mla_var3.knowledge.court.cases import Launch, Stranger


def test_the_table_has_each_kernel_of_a_package_and_no_other():
    wanted = {case.id for case in cases.strangers() if case.launch}
    assert packages.load().keys() == wanted


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4))
def test_a_tensor_is_told_by_its_form(shape):
    found = packages.tensor(f"bf16[{','.join(map(str, shape))}]", "cpu")
    assert (list(found.shape), found.dtype) == (shape, torch.bfloat16)
    assert found.is_contiguous()


def test_a_tensor_may_have_strides():
    found = packages.tensor("f32[4,3]/8,2", "meta")
    assert (tuple(found.shape), found.stride()) == ((4, 3), (8, 2))


@pytest.mark.parametrize("text", ["bf16", "b16[3]", "bf16[3", "bf16[x]", "none"])
def test_what_is_no_tensor_is_refused(text):
    with pytest.raises(KnowledgeError, match="is no form of a tensor"):
        packages.tensor(text, "cpu")


def test_a_kernel_that_a_package_lacks_is_named(tmp_path):
    case = Stranger(id="x", package="p 1", kernel="nowhere_at_all:kernel", layer="gemm",
                    launch=Launch(arguments=()), remedies=(), why="w")  # fmt: skip
    with pytest.raises(KnowledgeError, match="x: p 1 has no nowhere_at_all:kernel"):
        packages.observe(case, tmp_path)


def test_a_kernel_of_a_file_is_compiled_and_counted(tmp_path, monkeypatch):
    (tmp_path / "strange_kernels.py").write_text(
        "import cuda.tile as ct\n\n@ct.kernel\ndef double(x, y, n: ct.Constant[int]):\n"
        "    i = ct.bid(0)\n    ct.store(y, (i,), 2 * ct.load(x, (i,), (n,)))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    given = ("f32[64]", "f32[64]", 16)
    case = Stranger(
        id="x", package="p 1", kernel="strange_kernels:double", layer="gemm", grid=(4,),
        launch=Launch(arguments=given), remedies=(), why="w",
        counted={"problem": {}, "arguments": given, "grid": (4,), "flops": 1, "bytes": 512},
    )  # fmt: skip
    found = packages.observe(case, tmp_path)
    assert found.stages[0].static.mma_path == "none"
    assert (found.counted.flops, found.counted.loaded) == (0, 256)


def test_what_the_table_has_is_compiled_when_asked_alone(tmp_path, monkeypatch):
    seen = next(iter(packages.load().values()))
    known = Stranger(id="known", package="p 1", kernel="k:k", layer="gemm",
                     launch=Launch(arguments=()), remedies=(), why="w")  # fmt: skip
    other = known.model_copy(update={"id": "new"})
    compiled = []

    def observe(case, _folder):
        compiled.append(case.id)
        return seen

    monkeypatch.setattr(packages, "observe", observe)
    (tmp_path / "results/court").mkdir(parents=True)
    for cases_, fresh, wanted in (
        ([known], False, ["known"]),
        ([known, other], False, ["new"]),
        ([known, other], True, ["known", "new"]),
    ):
        compiled.clear()
        packages.renew(cases_, tmp_path, tmp_path, print, fresh=fresh)
        assert compiled == wanted
    assert packages.load(tmp_path).keys() == {"known", "new"}


def test_a_call_is_written_as_a_script():
    launch = Launch(arguments=("bf16[2,3]", "none", 128), keywords={"pingpong": False})
    text = packages._call("package.module:gemm", launch)
    assert compile(text, "call.py", "exec")
    assert "torch.empty([2,3], dtype=torch.bfloat16, device='cuda')" in text
    assert "gemm(*arguments, **{'pingpong': False})" in text


def test_a_triton_kernel_is_compiled_without_its_tuner_and_with_its_heuristics():
    bare = SimpleNamespace(name="kernel")
    tuned = SimpleNamespace(configs=[1, 2], fn=bare)
    ruled = SimpleNamespace(values={"EVEN": len}, fn=tuned)
    assert packages._untuned(bare) is bare
    assert packages._untuned(tuned) is bare
    plain = packages._untuned(ruled)
    assert plain.values is ruled.values
    assert plain.fn is bare
    assert ruled.fn is tuned  # The package's own object stays as it was.


def test_arguments_of_a_triton_kernel_are_told_by_their_form():
    assert packages._given("none") is None
    assert packages._given("bf16[4,8]") is torch.bfloat16
    assert packages._given("tf32") == "tf32"
    assert packages._given(7) == 7
