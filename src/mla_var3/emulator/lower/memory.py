"""Lowers PTX loads, stores, atomics, cp.async and bulk copies (TMA) to Python source."""

from __future__ import annotations

import re

from mla_var3.emulator.lower.base import NotLowered, Op, family, numpy_name
from mla_var3.gpuless.ptx import bits

SPACES = ("global", "shared", "local", "param", "const")
#: Modifiers of an atomic that are not its operation.
SCOPES = {
    "relaxed",
    "acquire",
    "release",
    "acq_rel",
    "cta",
    "cluster",
    "gpu",
    "sys",
    "global",
    "shared",
    "shared::cta",
    "shared::cluster",
    "noftz",
    "async",
    "mbarrier::complete_tx::bytes",
    "L2::cache_hint",
    "generic",
}


def space_of(op: Op) -> str:
    """Memory space that an instruction names; generic where it names none."""
    for part in op.parts[1:]:
        if (name := part.partition("::")[0]) in SPACES:
            return "global" if name == "const" else name
    return "generic"


def _width(op: Op) -> int:
    if bits(op.kind) > 64:
        raise NotLowered(op.kind)
    return max(1, bits(op.kind) // 8)


def _order(op: Op) -> str:
    """How a memory access is ordered: weak, relaxed, acquire, release or acq_rel.

    What is for a CTA or a cluster alone says so behind a dot, as ``release.cta``.
    """
    names = ("acquire", "release", "acq_rel", "relaxed")
    found = next((n for n in names if op.has(n)), None)
    if found is None:
        return "relaxed" if op.has("volatile") else "weak"
    reach = next((scope for scope in ("cta", "cluster") if op.has(scope)), None)
    return f"{found}.{reach}" if reach else found


@family("ld", "ldu")
def ld(op: Op) -> list[str]:
    """Lower ``ld``, ``ldu``."""
    space, width = space_of(op), _width(op)
    targets = op.vector(0)
    if space == "param":
        return _load_parameter(op, targets, width)
    call = (
        f"memory.load('{space}', {op.address(1)}, {width}, {len(targets)}, {op.s}, {op.pc}, "
        f"'{_order(op)}')"
    )
    return [f"x = {call}", *_spread(op, targets, width)]


def _spread(op: Op, targets: list[str], width: int) -> list[str]:
    lines = []
    for i, target in enumerate(targets):
        if target == "_":
            continue
        kind = f"{op.kind[0] if op.kind[0] in 'sf' else 'u'}{8 * width}"
        view = f".view({numpy_name(kind)})" if kind[0] in "sf" else ""
        lines += op.put(f"x[{i}]{view}", kind, target)
    return lines


def _load_parameter(op: Op, targets: list[str], width: int) -> list[str]:
    inside = op.args[1].strip("[] ")
    name, _, offset = inside.partition("+")
    kernel = op.writer.program.kernel
    found = next((p for p in kernel.parameters if p.name == name.strip()), None)
    if found is None and (name.strip() in op.writer.program.local or name.startswith("%")):
        space = "parameter" if name.startswith("%") else "local"
        call = (
            f"memory.load('{space}', {op.address(1)}, {width}, {len(targets)}, {op.s}, "
            f"{op.pc}, 'weak')"
        )
        return [f"x = {call}", *_spread(op, targets, width)]
    if found is None:
        raise NotLowered(name)
    at = found.offset + int(offset or 0)
    return [f"x = parameters.read({at}, {width}, {len(targets)})", *_spread(op, targets, width)]


@family("st")
def st(op: Op) -> list[str]:
    """Lower ``st``."""
    space, width = space_of(op), _width(op)
    if space == "param":
        space = "local"
    values = ", ".join(op.get(v, f"u{8 * width}") for v in op.vector(1))
    if op.has("async"):
        return [
            f"bulk.store_async({op.address(0)}, {width}, [{values}], {op.address(2)}, {op.s}, "
            f"{op.pc})"
        ]
    call = (
        f"memory.store('{space}', {op.address(0)}, {width}, [{values}], {op.s}, {op.pc}, "
        f"'{_order(op)}')"
    )
    return [call]


@family("atom", "red")
def atomic(op: Op) -> list[str]:
    """Lower ``atom``, ``red``."""
    space = space_of(op)
    kind = op.kind
    names = [p for p in op.parts[1:-1] if p not in SCOPES]
    operation = names[0]
    count = next((int(n[1:]) for n in names if n in ("v2", "v4", "v8")), 1)
    result = op.parts[0] == "atom"
    at, values = (1, 2) if result else (0, 1)
    raw = f"u{bits(kind)}"
    operands = []
    for operand in op.args[values : values + (2 if operation == "cas" else 1)]:
        operands += [op.get(v, raw) for v in op.vector(operand)]
    if op.has("async"):
        return [
            f"bulk.reduce_async('{operation}', '{kind}', {op.address(at)}, "
            f"[{', '.join(operands)}], "
            f"{op.address(values + 1)}, {op.s}, {op.pc})"
        ]
    call = (
        f"memory.atomic('{space}', '{operation}', '{kind}', {op.address(at)}, "
        f"[{', '.join(operands)}], "
        f"{count}, {op.s}, {op.pc}, '{_order(op)}')"
    )
    if not result:
        return [call]
    targets = op.vector(0)
    return [f"x = {call}", *_spread(op, targets, bits(kind) // 8)]


@family("cp")
def cp(op: Op) -> list[str]:
    """Lower ``cp``."""
    if op.parts[1] == "reduce" or op.has("bulk"):
        return _bulk(op)
    if op.has("commit_group"):
        return [f"cp_async.commit({op.s})"]
    if op.has("wait_group"):
        return [f"cp_async.wait({int(op.args[0], 0)}, {op.s})"]
    if op.has("wait_all"):
        return [f"cp_async.commit({op.s})", f"cp_async.wait(0, {op.s})"]
    if op.has("mbarrier"):
        return [f"cp_async.arrive({op.address(0)}, {op.has('noinc')}, {op.s}, {op.pc})"]
    more = op.args[3 : len(op.args) - op.has("L2::cache_hint")]
    size = "None"
    if more and op.writer.program.kernel.register_type(more[0]) == "pred":
        size = f"np.where({op.get(3, 'pred')}, 0, {int(op.args[2], 0)})"
    elif more:
        size = op.get(3, "u32")
    return [
        f"cp_async.copy({op.address(0)}, {op.address(1)}, {int(op.args[2], 0)}, {size}, {op.s}, "
        f"{op.pc})"
    ]


def _bulk(op: Op) -> list[str]:
    if op.has("commit_group"):
        return [f"bulk.stores.commit({op.s}, {op.pc})"]
    if op.has("wait_group"):
        return [f"bulk.stores.wait({int(op.args[0], 0)}, {op.has('read')}, {op.s}, {op.pc})"]
    if op.has("prefetch"):
        return []
    if op.has("tensor"):
        return _tensor(op)
    if op.parts[1] == "reduce":
        return _reduce(op)
    spaces = [p for p in op.parts if p in ("shared::cluster", "shared::cta", "global")]
    if spaces[0] == "global":
        return [
            f"bulk.copy_out({op.address(0)}, {op.address(1)}, {op.get(2, 'u32')}, {op.s}, {op.pc})"
        ]
    call = "copy_in" if spaces[1] == "global" else "copy_across"
    mask = op.get(4, "u16") if op.has("multicast::cluster") else "None"
    return [
        f"bulk.{call}({op.address(0)}, {op.address(1)}, {op.get(2, 'u32')}, {op.address(3)}, "
        f"{mask}, "
        f"{op.s}, {op.pc})"
    ]


def _reduce(op: Op) -> list[str]:
    operation = op.parts[-2] if op.parts[-2] != "noftz" else op.parts[-3]
    return [
        f"bulk.reduce_out('{operation}', '{op.kind}', {op.address(0)}, {op.address(1)}, "
        f"{op.get(2, 'u32')}, {op.s}, {op.pc})"
    ]


def _tensor(op: Op) -> list[str]:
    spaces = [p for p in op.parts if p in ("shared::cluster", "shared::cta", "global")]
    load = spaces[0] != "global"
    at = op.args[1] if load else op.args[0]
    match = re.match(r"\[\s*([^,]+?)\s*,\s*\{(.*)\}\s*\]", at)
    if not match:
        raise NotLowered(op.instruction.op)
    descriptor = op.address(f"[{match[1]}]")
    coordinates = ", ".join(op.get(x.strip(), "s32") for x in match[2].split(","))
    if load:
        mask = op.get(3, "u16") if op.has("multicast::cluster") else "None"
        return [
            f"bulk.load_tensor({op.address(0)}, {descriptor}, [{coordinates}], {op.address(2)}, "
            f"{mask}, {op.has('cta_group::2')}, {op.s}, {op.pc})"
        ]
    operation = "''"
    if op.parts[1] == "reduce":
        operation = repr(
            next(
                p for p in op.parts if p in ("add", "min", "max", "inc", "dec", "and", "or", "xor")
            )
        )
    return [
        f"bulk.store_tensor({op.address(1)}, {descriptor}, [{coordinates}], {operation}, "
        f"{op.s}, {op.pc})"
    ]


@family("tensormap")
def tensormap(op: Op) -> list[str]:
    """Lower ``tensormap``."""
    if op.parts[1] == "cp_fenceproxy":
        return [f"bulk.maps.copy({op.address(0)}, {op.address(1)}, {op.s}, {op.pc})"]
    field = op.parts[3]
    numbered = field in ("global_dim", "global_stride", "box_dim", "element_stride")
    ordinal = int(op.args[1], 0) if numbered else 0
    space = "shared" if op.has("shared::cta", "shared") else "global"
    value = op.get(op.args[-1], "u" + op.kind[1:])
    return [
        f"bulk.maps.replace('{field}', {op.address(0)}, '{space}', {ordinal}, {value}, {op.s}, "
        f"{op.pc})"
    ]
