"""Compiling for an arch without tensors and without a GPU, and what it leaves."""

import os
import tempfile
from pathlib import Path

os.environ.setdefault("CUTE_DSL_ARCH", "sm_90a")
os.environ.setdefault("CUTE_DSL_DUMP_DIR", tempfile.mkdtemp())  # What is kept goes there.

import cutlass
from cutlass import cute
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream


# %% cute.compile cute.runtime.make_fake_compact_tensor cute.runtime.make_fake_stream
# %% cutlass.sym_int cute.kernel
@cute.kernel
def double(x: cute.Tensor):
    i = cute.arch.block_idx()[0] * 128 + cute.arch.thread_idx()[0]
    if i < x.shape[0]:
        x[i] = x[i] * 2.0


@cute.jit
def launch(x: cute.Tensor, stream):
    double(x).launch(grid=(cute.ceil_div(x.shape[0], 128), 1, 1), block=(128, 1, 1), stream=stream)


length = cutlass.sym_int(divisibility=4)  # Any multiple of 4: one kernel for all.
x = make_fake_compact_tensor(cutlass.Float32, (length,), assumed_align=16)
with tempfile.TemporaryDirectory() as folder:
    cute.compile(launch, x, make_fake_stream(), options=f"--keep-ptx --dump-dir={folder}")
    (text,) = (path.read_text() for path in Path(folder).rglob("*.ptx"))
assert ".target sm_90a" in text
assert "ld.global" in text


# %% cute.OptLevel cute.PtxasOptions cute.KeepCUBIN
def cubin(*options):
    compiled = cute.compile[(*options, cute.KeepCUBIN())](launch, x, make_fake_stream())
    return compiled.__cubin__


assert cubin() == cubin(cute.OptLevel(3))  # The default.
assert cubin(cute.OptLevel(0)) == cubin(cute.PtxasOptions("-O0")) != cubin()
with tempfile.TemporaryDirectory() as folder:
    flags = f"--opt-level 0 --ptxas-options '-O1 -v' --keep-ptx --dump-dir={folder}"
    cute.compile(launch, x, make_fake_stream(), options=flags)
    assert [path.read_text() for path in Path(folder).rglob("*.ptx")] == [text]
