"""Triton's launches: packed arguments, and its kernels where it is installed."""

import struct
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mla_var3.emulator import triton
from mla_var3.errors import EmulatorError

KERNELS = Path(__file__).with_name("triton_kernels.py")
SUBJECTS = ["add", "softmax", "matmul", "dropout", "layer_norm", "attention"]
needs_triton = pytest.mark.skipif(not triton.installed(), reason="Triton is not installed")

OUT_OF_BOUNDS = """
import torch
import triton
import triton.language as tl


@triton.jit
def double(x, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(x + at))


x = torch.ones(300, device="cuda")
double[(2,)](x, torch.empty_like(x), BLOCK=256)
"""


TUNED = """
import torch
import triton
import triton.language as tl


@triton.autotune([triton.Config({"K": k}) for k in (512, 32)], key=[])
@triton.jit
def product(a, b, out, SIZE: tl.constexpr, K: tl.constexpr):
    i, k = tl.arange(0, 128), tl.arange(0, K)
    total = tl.zeros((128, 128), tl.float32)
    for start in range(0, SIZE, K):
        left = tl.load(a + i[:, None] * SIZE + start + k[None, :])
        right = tl.load(b + (start + k[:, None]) * 128 + i[None, :])
        total = tl.dot(left, right, total)
    tl.store(out + i[:, None] * 128 + i[None, :], total)


a, b = (torch.ones(shape, device="cuda", dtype=torch.float16) for shape in ((128, 512), (512, 128)))
out = torch.zeros(128, 128, device="cuda")
product[(1,)](a, b, out, SIZE=512)
assert (out == 512).all()
assert product.best_config.kwargs["K"] == 32
kernel = product.fn.warmup(a, b, out, SIZE=512, K=32, grid=(1,))
kernel._init_handles()
assert 16 <= kernel.n_regs <= 255


@triton.testing.perf_report(triton.testing.Benchmark(["n"], [1], "p", ["x"], ["x"], "times", {}))
def times(n, p):
    raise AssertionError("nothing is timed")


times.run(print_data=True)
"""


@given(st.integers(-(2**31), 2**31 - 1), st.floats(width=32, allow_nan=False))
def test_scalars_are_passed_by_their_type(number: int, real: float) -> None:
    assert struct.unpack("<i", triton.packed("i32", number)) == (number,)
    assert struct.unpack("<q", triton.packed("i64", number)) == (number,)
    assert struct.unpack("<f", triton.packed("fp32", real)) == (real,)


def test_a_pointer_is_the_tensors_address_or_null() -> None:
    tensor = SimpleNamespace(data_ptr=lambda: 4096)
    assert triton.packed("*fp16", tensor) == struct.pack("<Q", 4096)
    assert triton.packed("*fp16", None) == bytes(8)


def test_a_type_that_is_not_known_ends_in_a_sentence() -> None:
    with pytest.raises(EmulatorError, match="type tensordesc is not emulated"):
        triton.packed("tensordesc", None)


def test_scratch_pointers_that_nobody_uses_are_null() -> None:
    call = triton.Call("k", (1, 1, 1), (32, 1, 1), (1, 1, 1), 0, [b"\x07\0\0\0"])
    assert call.argument(0, 4) == b"\x07\0\0\0"
    assert call.argument(1, 8) == bytes(8)


@needs_triton
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_kernels_after_the_tutorials_are_right_and_clean(arch: str) -> None:
    from mla_var3.emulator.options import Options
    from mla_var3.emulator.script import run_script

    emulation = run_script(KERNELS, SUBJECTS, Options(jobs=1), arch)
    assert emulation.ended.error is None
    assert emulation.diagnostics == []
    assert {launch.kernel for launch in emulation.launches} == set(SUBJECTS)


@needs_triton
def test_a_mask_that_is_left_out_is_reported_with_its_line(tmp_path: Path) -> None:
    from mla_var3.emulator.options import Options
    from mla_var3.emulator.script import run_script

    script = tmp_path / "double.py"
    script.write_text(OUT_OF_BOUNDS)
    found = run_script(script, [], Options(jobs=1), "sm_90a").diagnostics
    assert {d.kind for d in found} == {"out-of-bounds"}
    assert {d.at.line for d in found} == {OUT_OF_BOUNDS.splitlines().index(
        "    tl.store(out + at, 2 * tl.load(x + at))") + 1}  # fmt: skip


@needs_triton
def test_a_tuner_passes_over_what_a_gpu_has_no_room_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from mla_var3.emulator.options import Options
    from mla_var3.emulator.script import run_script

    script = tmp_path / "tuned.py"
    script.write_text(TUNED)
    emulation = run_script(script, [], Options(jobs=1), "sm_90a")
    assert emulation.ended.error is None
    assert emulation.diagnostics == []
    assert capsys.readouterr().out == "benchmark times is not run: the emulator times nothing\n"
