"""Leaves the PTX and the machine code (cubin) of a CuTe kernel in a folder; needs no GPU."""

import sys
from pathlib import Path

import cutlass
from cutlass import cute
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "out/code")
folder.mkdir(parents=True, exist_ok=True)


@cute.kernel
def double(x: cute.Tensor):
    i = cute.arch.block_idx()[0] * 128 + cute.arch.thread_idx()[0]
    if i < x.shape[0]:
        x[i] = x[i] * 2.0


@cute.jit
def launch(x: cute.Tensor, stream):
    double(x).launch(grid=(cute.ceil_div(x.shape[0], 128), 1, 1), block=(128, 1, 1), stream=stream)


keep = f"--gpu-arch sm_90a --keep-ptx --keep-cubin --dump-dir={folder}"
x = make_fake_compact_tensor(cutlass.Float32, (1024,))
cute.compile(launch, x, make_fake_stream(), options=keep)
print(*sorted(file.name for file in folder.iterdir()), sep="\n")
