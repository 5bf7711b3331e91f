"""What pages say of the CuTe DSL and no record can hold: its refusals, limits and headers."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cutlass")

import cutlass
import cutlass.pipeline
from cutlass import BFloat16, Float32, Int32, cute
from cutlass.cute.nvgpu import cpasync, warpgroup
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_tensor
from cutlass.cutlass_dsl import CuTeDSL
from cutlass.memory import SmemAllocator, get_smem_capacity_in_bytes
from cutlass.utils import hopper_helpers


@pytest.fixture(autouse=True)
def hopper(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CUTE_DSL_ARCH", "sm_90a")
    # Where another test told the DSL to keep PTX, it writes here.
    monkeypatch.setattr(CuTeDSL._get_dsl().envar, "dump_dir", str(tmp_path))


STOPS = True


@cute.kernel
def returns_early(x: cute.Tensor, n: Int32):
    if n > 2:
        return
    x[0] = Float32(1.0)


@cute.kernel
def breaks(x: cute.Tensor, n: Int32):
    for i in cutlass.range(n):
        if i > 2:
            break
        x[i] = Float32(1.0)


@cute.kernel
def breaks_a_constant_range(x: cute.Tensor, n: Int32):
    for i in range(4):
        if i > 2:
            break
        x[i] = Float32(1.0)


@cute.kernel
def returns_on_a_constant(x: cute.Tensor, n: Int32):
    if STOPS:
        return
    x[0] = Float32(1.0)


@cute.kernel
def assigns_in_a_branch(x: cute.Tensor, n: Int32):
    if n > 2:
        value = Float32(1.0)
    x[0] = value


@cute.kernel
def changes_its_type(x: cute.Tensor, n: Int32):
    total = 0
    for i in cutlass.range(n):
        total += x[i]
    x[0] = total


@cute.kernel
def appends_in_a_loop(x: cute.Tensor, n: Int32):
    seen: list[Any] = []
    for i in cutlass.range(n):
        seen.append(x[i])  # noqa: PERF401
    x[0] = seen[0]


def compile_with(kernel: Any) -> Any:
    @cute.jit
    def host(x: cute.Tensor, n: Int32):
        kernel(x, n).launch(grid=(1, 1, 1), block=(32, 1, 1))

    return cute.compile(host, make_fake_compact_tensor(Float32, (64,)), Int32(3))


@pytest.mark.parametrize(
    ("kernel", "said"),
    [
        (returns_early, "UNSUP_EARLY_EXIT"),
        (breaks, "UNSUP_EARLY_EXIT"),
        (breaks_a_constant_range, "UNSUP_EARLY_EXIT"),
        (returns_on_a_constant, "UNSUP_EARLY_EXIT"),
        (assigns_in_a_branch, "NameError"),
        (changes_its_type, "TYPE_UNSTABLE_JOIN"),
        (appends_in_a_loop, "TYPE_UNSTABLE_JOIN"),
    ],
)
def test_control_flow_that_the_dsl_refuses(kernel: Any, said: str) -> None:
    with pytest.raises(Exception, match=said):
        compile_with(kernel)


types_seen: list[type] = []


@cute.kernel
def without_annotations(x: cute.Tensor, whole, real, flag):
    types_seen.extend(type(each) for each in (whole, real, flag))
    x[0] = Float32(1.0)


def test_a_number_without_an_annotation_is_an_argument_of_run_time() -> None:
    @cute.jit
    def host(x: cute.Tensor):
        without_annotations(x, 5, 2.5, True).launch(grid=(1, 1, 1), block=(32, 1, 1))

    types_seen.clear()
    cute.compile(host, make_fake_compact_tensor(Float32, (64,)))
    assert types_seen == [Int32, Float32, cutlass.Boolean]


class Named:
    """One class, several constants."""

    def __init__(self, value: int) -> None:
        self.value = value

    @cute.jit
    def __call__(self, x: cute.Tensor):
        self.kernel(x).launch(grid=(1, 1, 1), block=(32, 1, 1))

    @cute.kernel
    def kernel(self, x: cute.Tensor):
        x[0] = Float32(self.value)


def test_two_instances_of_a_class_have_kernels_of_one_name() -> None:
    tensor = make_fake_compact_tensor(Float32, (64,))
    first, second = (list(cute.compile(Named(v), tensor).kernel_info) for v in (1, 2))
    assert first == second


class Captures:
    """Keeps a swizzled layout on itself from the host function to the kernel."""

    @cute.jit
    def __call__(self, x: cute.Tensor):
        kind = warpgroup.SmemLayoutAtomKind.K_SW128
        self.ring = warpgroup.make_smem_layout_atom(kind, cutlass.Float16)
        self.kernel(x).launch(grid=(1, 1, 1), block=(32, 1, 1))

    @cute.kernel
    def kernel(self, x: cute.Tensor):
        tile = SmemAllocator().allocate_tensor(
            cutlass.Float16, self.ring.outer, byte_alignment=1024, swizzle=self.ring.inner
        )
        x[0] = Float32(tile[0, 0])


def test_a_layout_on_self_is_a_value_of_another_region() -> None:
    with pytest.raises(Exception, match="IR verification failed") as caught:
        cute.compile(Captures(), make_fake_compact_tensor(Float32, (64,)))
    said = " ".join(str(caught.value).split())
    assert "'cute.composed_get_outer' op using value defined outside the region" in said


@cute.kernel
def one(x: cute.Tensor):
    x[0] = Float32(1.0)


@cute.jit
def named_as_a_keyword(register: cute.Tensor):
    one(register).launch(grid=(1, 1, 1), block=(1, 1, 1))


@pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc")
def test_a_parameter_named_as_a_keyword_breaks_the_header(tmp_path: Path) -> None:
    done = cute.compile(named_as_a_keyword, make_fake_compact_tensor(Float32, (64,)))
    done.export_to_c(file_path=str(tmp_path), file_name="kw", function_prefix="kw")
    header = (tmp_path / "kw.h").read_text()
    assert "kw_Tensor_register_t *register" in header
    source = tmp_path / "call.c"
    source.write_text(
        "typedef int kw_Tensor_register_t;\nvoid f(kw_Tensor_register_t *register);\n"
    )
    said = subprocess.run(
        ["gcc", "-c", source], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert said.returncode != 0
    assert "before 'register'" in said.stderr.replace("\u2018", "'").replace("\u2019", "'")


def test_shared_memory_that_each_arch_grants() -> None:
    granted = {"sm_80": 166912, "sm_86": 101376, "sm_89": 101376, "sm_120": 101376}
    granted |= {"sm_121": 101376}
    granted |= dict.fromkeys(("sm_90", "sm_100", "sm_103", "sm_110"), 232448)
    assert {arch: get_smem_capacity_in_bytes(arch) for arch in granted} == granted


def test_a_fake_tensor_has_its_first_axis_contiguous() -> None:
    assert make_fake_compact_tensor(BFloat16, (128, 64)).stride == (1, 128)
    by_rows = make_fake_compact_tensor(BFloat16, (128, 64), stride_order=(1, 0))
    assert by_rows.stride == (64, 1)


@pytest.mark.parametrize("dtype", [cutlass.Float16, BFloat16])
def test_operands_of_16_bits_may_be_mn_major(dtype: type) -> None:
    compile_transposed(dtype, Float32)


def test_only_operands_of_16_bits_may_be_mn_major() -> None:
    for dtype, sums in (
        (cutlass.Float8E4M3FN, Float32),
        (cutlass.Float8E5M2, Float32),
        (cutlass.Int8, Int32),
    ):
        with pytest.raises(Exception, match="only support f16/bf16 with mn-major"):
            compile_transposed(dtype, sums)


def compile_transposed(dtype: type, sums: type) -> None:
    """Make the fragment of a tile [keys, width] that wgmma reads as [width, keys]."""
    k, mn = cute.nvgpu.OperandMajorMode.K, cute.nvgpu.OperandMajorMode.MN
    width = 1024 // dtype.width

    @cute.kernel
    def kernel(mma: cute.TiledMma):
        atom = warpgroup.make_smem_layout_atom(warpgroup.SmemLayoutAtomKind.K_SW128, dtype)
        layout = cute.tile_to_shape(atom, (64, width), order=(0, 1))
        tile = SmemAllocator().allocate_tensor(dtype, layout.outer, 1024, swizzle=layout.inner)
        turned = cute.make_tensor(tile.iterator, cute.select(tile.layout, mode=[1, 0]))
        mma.make_fragment_B(mma.get_slice(cute.arch.thread_idx()[0]).partition_B(turned))

    @cute.jit
    def launch():
        mma = hopper_helpers.make_trivial_tiled_mma(
            dtype, dtype, k, mn, sums, (1, 1, 1), (64, width)
        )
        kernel(mma).launch(grid=(1, 1, 1), block=(128, 1, 1))

    cute.compile(launch, options="--gpu-arch sm_90a")


def test_there_are_sixteen_named_barriers() -> None:
    said = cutlass.pipeline.NamedBarrier.__doc__ or ""
    assert "There are 16 named barriers available, with barrier_ids 0-15." in said


@cute.kernel
def takes_a_tensor_map(load: cute.CopyAtom, coords: cute.Tensor):
    pass


@cute.jit
def makes_a_tensor_map(z: cute.Tensor):
    kind = warpgroup.SmemLayoutAtomKind.K_SW128
    tile = cute.tile_to_shape(
        warpgroup.make_smem_layout_atom(kind, z.element_type), (64, 64), order=(0, 1)
    )
    load, coords = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileG2SOp(), z, tile, (64, 64))
    takes_a_tensor_map(load, coords).launch(grid=(1, 1, 1), block=(32, 1, 1))


def host_code(width: int) -> str:
    """What makes the tensor map of rows of ``width`` bf16 values, lowered."""
    rows = cute.sym_int32()
    z = make_fake_tensor(BFloat16, (rows, width), stride=(width, 1), assumed_align=16)
    return str(cute.compile(makes_a_tensor_map, z).ir_module)


def test_no_stride_of_a_tensor_map_is_checked() -> None:
    """A row of 264 bytes goes into the map as one of 256, and nobody asks the driver."""
    in_sixteens = f"llvm.mlir.constant({264 // 16 << 32} : i64)"
    for width in (132, 128):
        text = host_code(width)
        assert "cuTensorMapEncode" not in text
        assert in_sixteens in text
    assert in_sixteens not in host_code(192)
