"""Lowers a cuTile kernel's typed IR to Python closures.

What does not depend on the block is lowered apart, as the program's prologue.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cuda.tile import _datatype as dt
from cuda.tile._ir.type import TileTy

from mla_var3.errors import InterpreterError
from mla_var3.interpreter import taint
from mla_var3.interpreter.handlers import HANDLERS
from mla_var3.interpreter.launch_report import SourceLine
from mla_var3.interpreter.probes import Probes, probed
from mla_var3.interpreter.program import (
    Code,
    Env,
    Program,
    Runtime,
    Segment,
    Step,
    line_of,
    loc_of,
)
from mla_var3.interpreter.slots import Slots
from mla_var3.interpreter.values import to_tensor
from mla_var3.interpreter.ways import noted


class Lowering(Slots):
    """Builds the program of one kernel. Handlers in ``ops`` use it to read their operation."""

    def __init__(self, used: frozenset[str] = frozenset(), probes: Probes | None = None) -> None:
        super().__init__()
        self.probes = probes or Probes()
        self.used = used  # names of the variables that some operation reads
        self.segments: list[Segment] = []
        self.segment: Segment | None = None
        self.repeat = 1
        self.widest = 0

    # ---------------------------------------------------------------------------- counting

    def count(self, kind: str, flops: int) -> None:
        """Adds FLOPs of the operation being lowered to its segment."""
        assert self.segment is not None
        self.segment.flops[kind] += flops * self.repeat

    # ------------------------------------------------------------------------------ blocks

    def block(self, block: Any, *, ops: Sequence[Any] | None = None) -> Code:
        """Lowers a block, or some operations of it."""
        outer = self.segment
        code = Code()
        self._open(code)
        for op in block.operations if ops is None else ops:
            self._operation(op, code)
        self.segment = outer
        if code.segments and code.segments[-1].size == 0:
            code.segments.pop()
        return code

    def _open(self, code: Code) -> None:
        self.segment = Segment(len(self.segments))
        self.segments.append(self.segment)
        code.segments.append(self.segment)

    def _operation(self, op: Any, code: Code) -> None:
        for result in op.result_vars:
            self.defining[result.name] = op
            if self.local is not None:
                self.local.add(result.name)
        if self.local is None and op.result_vars:
            self.note_names(op)
        segment = code.segments[-1]
        self.segment = segment
        if op.op not in HANDLERS:  # from a package that adds operations to cuTile
            file, line = line_of(op)
            raise InterpreterError(
                f"{file}:{line}: the interpreter does not know operation {op.op!r}"
            )
        built = HANDLERS[op.op](op, self)
        self.segment = segment
        if built is None:
            return
        step, rule = built if isinstance(built, tuple) else (built, self._default_rule(op))
        if op.op in CONTROL:
            segment.tail, segment.nested = step, op.op in ("loop", "ifelse")
            self._open(code)
        else:
            loc = loc_of(op)
            segment.pairs.append(
                (noted(probed(self.probes, step, op, self, loc), op, self, loc), rule)
            )
            segment.names.append((op.op, line_of(op)))

    def _default_rule(self, op: Any) -> taint.Rule:
        if self.local is not None or len(op.result_vars) != 1:
            return taint.own  # of a combiner, the reduction or scan knows the taint
        ty = op.result_var.get_type()
        if not isinstance(ty, TileTy):
            return taint.own
        inputs = self.slots([v for v in op.all_inputs() if isinstance(v.get_type(), TileTy)])
        return taint.elementwise(inputs, self.slot(op.result_var), ty.shape)

    def combiner(self, block: Any, repeat: int) -> tuple[Code, tuple[int, ...], tuple[int, ...]]:
        """Lowers the body of a reduction or scan, to run on whole tensors.

        Args:
            block: The body.
            repeat: How often the body runs for an element each, for its FLOPs.

        Returns:
            The code, the slots of its parameters, and the slots of its results.
        """
        assert self.segment is not None
        self.local = {p.name for p in block.params}
        self.captured = {}
        kept, self.repeat = self.repeat, repeat
        params = self.slots(block.params)
        *ops, last = block.operations
        code = self.block(block, ops=ops)
        results = self.slots(last.outputs)
        if self.captured:
            if not code.segments:
                code.segments.append(Segment(len(self.segments)))
                self.segments.append(code.segments[0])
            first = code.segments[0]
            first.pairs[:0] = [(_materialise(*c), taint.own) for c in self.captured.values()]
            first.names[:0] = [("typed_const", ("<unknown>", 0))] * len(self.captured)
        self.local, self.repeat = None, kept
        for segment in code.segments:
            # The work counts once a reduction, however many passes over tensors it takes here.
            self.segment.flops.update(segment.flops)
            segment.flops.clear()
        return code, params, results


CONTROL = frozenset({"loop", "ifelse", "break", "continue", "end_branch", "return"})


def _materialise(source: int, target: int, dtype: Any) -> Step:
    def step(env: Env, rt: Runtime) -> None:
        env[target] = to_tensor(env[source], dtype)

    return step


# Operations without effect whose result depends on their operands alone.
_PURE = frozenset(
    [
        "address_space_cast",
        "assume_bounded",
        "assume_div_by",
        "fma",
        "foreign_pointer_cast",
        "make_dummy",
        "make_gather_scatter_view",
        "make_list_view",
        "make_partition_view",
        "make_strided_view",
        "make_tensor_view",
        "make_token",
        "num_tiles",
        "pointer_offset",
        "raw_binary_arith",
        "raw_binary_bitwise",
        "raw_bitwise_shift",
        "raw_cmp",
        "raw_fpowi",
        "raw_where",
        "reinterpret_pointer",
        "tile_arange",
        "tile_astype",
        "tile_bitcast",
        "tile_broadcast",
        "tile_cat",
        "tile_extract",
        "tile_insert",
        "tile_mma",
        "tile_mma_scaled",
        "tile_num_blocks",
        "tile_pack",
        "tile_permute",
        "tile_reduce",
        "tile_reshape",
        "tile_scan",
        "tile_unpack",
        "typed_const",
        "unaryop",
        "get_array_list_item",
        "join_tokens",
        "assign",
    ]
)


# Operations that are counted, or may have a finding, even where nothing uses their result.
_OBSERVED = frozenset(
    [
        "assume_bounded",
        "assume_div_by",
        "fma",
        "get_array_list_item",
        "raw_fpowi",
        "tile_extract",
        "tile_insert",
        "tile_mma",
        "tile_mma_scaled",
        "tile_reduce",
        "tile_scan",
        "unaryop",
    ]
)


def _observed(op: Any) -> bool:
    """Tells whether a block that returns before an operation must not run it."""
    counted = op.op == "raw_binary_arith" and dt.is_float(op.result_var.get_type().dtype)
    return counted or op.op in _OBSERVED


def lower(root: Any, name: str, probes: Probes | None = None) -> Program:
    """Lowers the typed IR of a kernel.

    Args:
        root: The root block, see ``frontend.typed_ir``.
        name: Name of the kernel, for messages.
        probes: What is looked at besides.
    """
    used = frozenset(v.name for op in root.traverse() for v in op.all_inputs())
    lowering = Lowering(used, probes)
    params = list(lowering.slots(root.params))
    known = {p.name for p in root.params}
    once, every, may_return = [], [], False
    for op in root.operations:
        may_return = may_return or any(
            o.op == "return" for b in op.nested_blocks for o in b.traverse()
        )
        movable = op.op in _PURE and not (may_return and _observed(op))
        if movable and all(v.name in known for v in op.all_inputs()):
            # A combiner may also use values from outside; those are operands of its own operations.
            inner = [v for b in op.nested_blocks for o in b.traverse() for v in o.all_inputs()]
            local = {v.name for b in op.nested_blocks for v in b.all_defined_vars()}
            if all(v.name in known or v.name in local for v in inner):
                once.append(op)
                known.update(v.name for v in op.result_vars)
                continue
        every.append(op)
    prologue = lowering.block(root, ops=once)
    body = lowering.block(root, ops=every)
    return Program(
        name,
        (root.loc.filename or "<unknown>", root.loc.line),
        params,
        prologue,
        body,
        lowering.size,
        lowering.segments,
        _stored_params(root),
        lowering.widest,
    )


def _stored_params(root: Any) -> dict[int, SourceLine] | None:
    """Follows every store back to the parameters whose memory it may write."""
    defining = {v.name: op for op in root.traverse() for v in op.result_vars}
    index = {p.name: i for i, p in enumerate(root.params)}
    found: dict[int, SourceLine] = {}
    for op in root.traverse():
        if op.op in ("tile_store", "tile_atomic_red_view"):
            var = op.view
        elif op.op in ("store_pointer", "tile_atomic_rmw", "tile_atomic_cas"):
            var = op.pointer
        else:
            continue
        while var.name not in index:
            source = defining.get(var.name)
            field_name = None if source is None else _SOURCE.get(source.op)
            if field_name is None:
                return None
            var = getattr(source, field_name)
        found.setdefault(index[var.name], line_of(op))
    return found


# The operand that says where a pointer or view comes from.
_SOURCE = {
    "make_partition_view": "array",
    "make_strided_view": "array",
    "make_gather_scatter_view": "array",
    "make_tensor_view": "base_ptr",
    "make_list_view": "base_ptr",
    "get_array_list_item": "x",
    "pointer_offset": "pointer",
    "assume_div_by": "x",
    "assume_bounded": "x",
    "foreign_pointer_cast": "pointer",
    "reinterpret_pointer": "pointer",
    "address_space_cast": "pointer",
    "tile_reshape": "x",
    "tile_broadcast": "x",
    "tile_permute": "x",
    "tile_extract": "x",
    "assign": "value",
}
