"""Compiling cuTile kernels ahead of time, without a GPU and without tensors."""

import cuda.tile as ct
from cuda.tile import compilation


# %% compilation.KernelSignature compilation.ArrayConstraint compilation.ConstantConstraint
# %% compilation.CallingConvention compilation.mangle_kernel_name compilation.demangle_kernel_name
@ct.kernel
def double(x, TILE: ct.Constant[int]):
    i = ct.bid(0)
    ct.store(x, (i,), 2 * ct.load(x, (i,), (TILE,)))


vector = compilation.ArrayConstraint(
    ct.float32, 1, index_dtype=ct.int32, stride_constant=(1,), stride_lower_bound_incl=0,
    alias_groups=(), may_alias_internally=False,
)  # fmt: skip
signature = compilation.KernelSignature(
    [vector, compilation.ConstantConstraint(64)], compilation.CallingConvention.cutile_python_v1()
)
name = compilation.mangle_kernel_name("double", signature)
function, told = compilation.demangle_kernel_name(name)
assert (function, told.parameters) == ("double", signature.parameters)


# %% TileTypeError TileError
@ct.kernel
def mixed(x, TILE: ct.Constant[int]):
    tile = ct.load(x, (0,), (TILE,))
    ct.store(x, (0,), ct.astype(tile, ct.float16) + ct.astype(tile, ct.bfloat16))


try:
    compilation.export_kernel(
        mixed, [signature], "/dev/null", gpu_code="sm_90", output_format="cubin"
    )
except ct.TileTypeError as error:
    assert isinstance(error, ct.TileError)
    assert "bfloat16" in str(error)
else:
    raise AssertionError("float16 and bfloat16 were added")
