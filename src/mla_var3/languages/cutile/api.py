"""Lists public names of the installed cuda-tile, with the types its front end gives operations.

For the reference of its API, which is compared with the installed package.
"""

from __future__ import annotations

import importlib.util
import inspect
import itertools
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cuda.tile as ct
import torch

from mla_var3.errors import InterpreterError
from mla_var3.interpreter import kernel_signature
from mla_var3.interpreter.frontend import typed_ir
from mla_var3.languages.public_names import PublicName, read

ALIASES = {"ct": "cuda.tile"}
#: Modules of the package with names of their own.
SUBMODULES = ("compilation", "tune")
#: Classes whose methods are operations.
OF_TILES = ("Array", "Tile", "TiledView")


def names() -> dict[str, PublicName]:
    """Every public name, methods of tiles and arrays by themselves."""
    found = {f"ct.{name}": getattr(ct, name) for name in ct.__all__}
    for module in SUBMODULES:
        del found[f"ct.{module}"]
        home = getattr(ct, module)
        found |= {f"ct.{module}.{name}": getattr(home, name) for name in home.__all__}
    told = {name: read(value) for name, value in found.items()}
    from cuda.tile._stub import RawArrayMemory

    told["ct.RawArrayMemory"] = read(RawArrayMemory)
    for owner in (*(getattr(ct, name) for name in OF_TILES), RawArrayMemory):
        told |= {
            f"ct.{owner.__name__}.{name}": _method(member)
            for name, member in vars(owner).items()
            if not name.startswith("_") or name == "__getitem__"
        }
    return dict(sorted(told.items()))


def _method(member: Any) -> PublicName:
    if isinstance(member, property):
        return PublicName("value")
    return read(inspect.unwrap(getattr(member, "__func__", member)))


# -- what the front end makes of an operation ------------------------------------------------------

#: An expression for each operation: ``x`` and ``y`` are tiles [4, 4] of the dtype that is tried.
_BINARY = """add sub mul truediv floordiv mod pow atan2 minimum maximum cdiv bitwise_and bitwise_or
    bitwise_xor bitwise_lshift bitwise_rshift equal not_equal less less_equal greater greater_equal
    matmul"""
_UNARY = """negative abs floor ceil exp exp2 log log2 sqrt rsqrt sin cos tan sinh cosh tanh isnan
    bitwise_not transpose"""
_ALONG = "sum prod max min argmax argmin cumsum cumprod"
EXPRESSIONS = {
    **dict.fromkeys(_BINARY.split(), "ct.{0}(x, y)"),
    **dict.fromkeys(_UNARY.split(), "ct.{0}(x)"),
    **dict.fromkeys(_ALONG.split(), "ct.{0}(x, axis=0)"),
    "divmod": "ct.divmod(x, y)[0]",
    "reduce": "ct.reduce(x, 0, lambda a, b: ct.maximum(a, b), 0)",
    "scan": "ct.scan(x, 0, lambda a, b: ct.maximum(a, b), 0)",
    "mma": "ct.mma(x, y, ct.zeros((4, 4), {acc}))",
    "where": "ct.where(x == y, x, y)",
    "reshape": "ct.reshape(x, (16,))",
    "permute": "ct.permute(x, (1, 0))",
    "expand_dims": "ct.expand_dims(x, 0)",
    "broadcast_to": "ct.broadcast_to(x, (2, 4, 4))",
    "cat": "ct.cat((x, y), 0)",
    "extract": "ct.extract(x, (0, 1), (2, 2))",
    "insert": "ct.insert(x, (0, 0), ct.zeros((2, 2), x.dtype))",
    "astype": "ct.astype(x, ct.float32 if x.dtype != ct.float32 else ct.float16)",
    "bitcast": "ct.bitcast(x, {bits})",
    "pack_to_bytes": "ct.pack_to_bytes(x)",
    "unpack_from_bytes": "ct.unpack_from_bytes(ct.zeros((64,), ct.uint8), x.dtype)",
    "full": "ct.full((4, 4), 1, x.dtype)",
    "zeros": "ct.zeros((4, 4), x.dtype)",
    "ones": "ct.ones((4, 4), x.dtype)",
    "arange": "ct.arange(4, dtype=x.dtype)",
    "astile": "ct.astile((1, 0), dtype=x.dtype)",
    "load": "ct.load(A, (1, 0), (4, 4))",
    "gather": "ct.gather(A, (ct.arange(4, dtype=ct.int32), 0))",
    "load_advanced_indexing": "ct.load_advanced_indexing(A, (ct.arange(4, dtype=ct.int32), "
    "ct.Slice(0, 4)))",
    "bid": "ct.bid(0)",
    "num_blocks": "ct.num_blocks(0)",
    "num_tiles": "ct.num_tiles(A, 0, (4, 4))",
    "assume_divisible_by": "ct.assume_divisible_by(A.shape[0], 8)",
    "mma_scaled": "ct.mma_scaled(ct.zeros((4, 32), x.dtype), ct.ones((4, 1), ct.float8_e8m0fnu), "
    "ct.zeros((32, 4), x.dtype), ct.ones((1, 4), ct.float8_e8m0fnu), ct.zeros((4, 4), ct.float32))",
}
#: Statements: they store, print or wait.
STATEMENTS = {
    "store": "ct.store(A, (0, 0), x)",
    "scatter": "ct.scatter(A, (ct.arange(4, dtype=ct.int32), 0), 1)",
    "store_advanced_indexing": "ct.store_advanced_indexing(A, (ct.arange(4, dtype=ct.int32), "
    "ct.Slice(0, 4)), x)",
    **{
        f"atomic_{name}": f"ct.atomic_{name}(A, (0, 0), ct.full((), 1, A.dtype))"
        for name in ("add", "max", "min", "and", "or", "xor", "xchg")
    },
    "atomic_cas": "ct.atomic_cas(A, (0, 0), 0, 1)",
    "print": "ct.print(x)",
    "printf": 'ct.printf("%f", x)',
    "assert_": "ct.assert_(x == x)",
    "grid_dependency_control_wait": "ct.grid_dependency_control_wait()",
    "grid_dependency_control_launch_dependents": "ct.grid_dependency_control_launch_dependents()",
}

#: What is a number and no tile.
_SCALAR = frozenset({"bid", "num_blocks", "num_tiles", "assume_divisible_by"})
_KEPT = "ct.store(R, (0,), ct.reshape(r{}, (-1,)))"

#: The dtypes that torch tensors carry into a kernel.
DTYPES = {
    "bool": torch.bool, "i8": torch.int8, "i16": torch.int16, "i32": torch.int32,
    "i64": torch.int64, "u8": torch.uint8, "u16": torch.uint16, "u32": torch.uint32,
    "u64": torch.uint64, "f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32,
    "f64": torch.float64, "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2,
}  # fmt: skip
#: No tensor is in TF32: tiles are converted to it, and products take it.
TF32, _PRODUCTS = "tf32", ("matmul", "mma")
_ACCUMULATORS = {"i8": "ct.int32", "u8": "ct.int32", "f64": "ct.float64"}
_BITS = {1: "ct.uint8", 2: "ct.uint16", 4: "ct.uint32", 8: "ct.uint64"}
#: Where a result goes, tried in order.
_OUT = (torch.float32, torch.int32, torch.bool, torch.int64, torch.uint8)


@dataclass(frozen=True)
class Observed:
    """What the front end made of an operation.

    Attributes:
        dtypes: The dtypes that it takes.
        lowers: What it becomes in the typed IR, with the function where several share an opcode.
    """

    dtypes: tuple[str, ...]
    lowers: tuple[str, ...]


def observed() -> dict[str, dict[str, Any]]:
    """What every operation takes and becomes, by name; takes a quarter of a minute."""
    return {f"ct.{name}": vars(seen) for name, seen in observe(observable()).items()}


def observe(wanted: Iterable[str]) -> dict[str, Observed]:
    """Try operations on every dtype.

    Args:
        wanted: Operations, such as ``sum``.
    """
    with tempfile.TemporaryDirectory(prefix="hypermla-api-") as folder:
        return {name: _observed(name, Path(folder)) for name in wanted}


def observable() -> list[str]:
    """The operations that ``observe`` has an expression for."""
    return sorted(EXPRESSIONS | STATEMENTS)


def _observed(name: str, folder: Path) -> Observed:
    taken: dict[str, list[str]] = {}
    for dtype, held in {**DTYPES, **({TF32: torch.float32} if name in _PRODUCTS else {})}.items():
        found = _opcodes(_source(name, dtype), f"{name}_{dtype}", folder, held)
        if found is not None:
            taken[dtype] = found
    # Of the dtypes, the one that says most: a constant may be folded away, and bool is special.
    first = next((taken[d] for d in ("f32", "i32", "f16", *taken) if taken.get(d)), [])
    return Observed(tuple(taken), tuple(first))


def _source(name: str, dtype: str) -> str:
    bits = _BITS[DTYPES.get(dtype, torch.float32).itemsize]
    values = {"acc": _ACCUMULATORS.get(dtype, "ct.float32"), "bits": bits}
    cast, back = (".astype(ct.tfloat32)", ".astype(ct.float32)") if dtype == TF32 else ("", "")
    if name in STATEMENTS:
        lines = [STATEMENTS[name]]
    else:
        lines = [f"r = {EXPRESSIONS[name].format(name, **values)}"]
        lines.append("ct.scatter(R, 0, r)" if name in _SCALAR else _KEPT.format(back))
    body = "\n    ".join(
        [f"{n} = ct.load(A, (0, {i}), (4, 4)){cast}" for i, n in enumerate("xy")] + lines
    )
    return f"import cuda.tile as ct\n\n\n@ct.kernel\ndef probe(A, R):\n    {body}\n"


def _opcodes(source: str, name: str, folder: Path, dtype: torch.dtype) -> list[str] | None:
    """What a probe adds to a kernel that only loads and keeps; None where it is refused."""
    file = folder / f"{name}.py"
    file.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    array = torch.empty((8, 8), dtype=dtype, device="meta")
    kept = " r = " in source
    last = source.count("\n") - kept
    for out in (dtype, *_OUT) if kept else (dtype,):
        result = torch.empty(8, dtype=out, device="meta")
        try:
            block = typed_ir(module.probe, kernel_signature(module.probe, (array, result)))
        except InterpreterError:
            continue
        found = set(_of_line(block, last))
        # What computes an address is not what the operation is.
        return sorted(found & _ACCESSES or found)
    return None


def _of_line(block: Any, line: int) -> Iterator[str]:
    """The operations of a line of the kernel, those of nested blocks too."""
    for op in block.operations:
        if op.loc.line == line and op.op not in _SILENT:
            fn = op.attributes.get("fn")
            yield f"{op.op}({getattr(fn, 'name', fn).lower()})" if fn is not None else op.op
        for inner in itertools.chain(op.nested_blocks):
            yield from _of_line(inner, line)


#: Accesses by address: what stands beside one computes its address.
_ACCESSES = frozenset({"load_pointer", "store_pointer", "tile_atomic_cas", "tile_atomic_rmw"})
#: What every kernel has: constants, tokens, the end of a block.
_SILENT = frozenset({
    "typed_const", "make_token", "join_tokens", "assign", "return", "end_branch", "make_dummy",
    "continue", "break",
})  # fmt: skip
