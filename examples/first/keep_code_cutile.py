"""Leaves the Tile IR and the cubin of a cuTile kernel in a folder; needs no GPU."""

import sys
from pathlib import Path

import cuda.tile as ct
from cuda.tile import compilation

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "out/code")
folder.mkdir(parents=True, exist_ok=True)


@ct.kernel
def double(x, TILE: ct.Constant[int]):
    i = ct.bid(0)
    ct.store(x, (i,), 2 * ct.load(x, (i,), (TILE,)))


vector = compilation.ArrayConstraint(
    ct.float32, 1, index_dtype=ct.int32, stride_constant=(1,), stride_lower_bound_incl=0,
    alias_groups=(), may_alias_internally=False,
)  # fmt: skip
signature = compilation.KernelSignature(
    [vector, compilation.ConstantConstraint(256)], compilation.CallingConvention.cutile_python_v1()
)
for name, kind in (("double.tileirbc", "tileir_bytecode"), ("double.cubin", "cubin")):
    compilation.export_kernel(
        double, [signature], folder / name, gpu_code="sm_90", output_format=kind
    )
print(*sorted(file.name for file in folder.iterdir()), sep="\n")
