"""Triton's launches: packed arguments, and its kernels where it is installed."""

from pathlib import Path

import pytest

from mla_var3.emulator import triton

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


DESCRIPTORS = """
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def by_device(a, b, c, M, N, K, TILE: tl.constexpr, DEPTH: tl.constexpr):
    left = tl.make_tensor_descriptor(a, [M, K], [K, 1], [TILE, DEPTH])
    right = tl.make_tensor_descriptor(b, [N, K], [K, 1], [TILE, DEPTH])
    out = tl.make_tensor_descriptor(c, [M, N], [N, 1], [TILE, TILE])
    product(left, right, out, K, TILE, DEPTH)


@triton.jit
def product(left, right, out, K, TILE: tl.constexpr, DEPTH: tl.constexpr):
    i, j = tl.program_id(0) * TILE, tl.program_id(1) * TILE
    total = tl.zeros((TILE, TILE), tl.float32)
    for k in range(0, K, DEPTH):
        total = tl.dot(left.load([i, k]), right.load([j, k]).T, total)
    out.store([i, j], total.to(tl.float16))


@triton.jit
def total(parts, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(parts[0] + at) + tl.load(parts[1] + at) * parts[2])


triton.set_allocator(lambda size, align, stream: torch.empty(size, device="cuda", dtype=torch.int8))
a, b = (torch.randn(n, 64, device="cuda", dtype=torch.float16) for n in (120, 72))
for way in ("host", "device"):
    c = torch.zeros(120, 72, device="cuda", dtype=torch.float16)
    if way == "device":
        by_device[(2, 2)](a, b, c, 120, 72, 64, TILE=64, DEPTH=32)
    else:
        made = (TensorDescriptor.from_tensor(x, [64, n]) for x, n in ((a, 32), (b, 32), (c, 64)))
        product[(2, 2)](*made, 64, TILE=64, DEPTH=32)
    torch.testing.assert_close(c.float(), a.float() @ b.float().T, atol=0.05, rtol=0.05)
x, y, z = (torch.randn(64, device="cuda") for _ in range(3))
total[(1,)]((x, y, 3), z, BLOCK=64)
torch.testing.assert_close(z, x + 3 * y)
"""


@needs_triton
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_descriptors_of_host_and_device_and_tuples(tmp_path: Path, arch: str) -> None:
    from mla_var3.emulator.options import Options
    from mla_var3.emulator.script import run_script

    script = tmp_path / "descriptors.py"
    script.write_text(DESCRIPTORS)
    emulation = run_script(script, [], Options(jobs=1), arch)
    assert emulation.ended.error is None
    assert {launch.kernel for launch in emulation.launches} == {"by_device", "product", "total"}


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
