"""Parses compiler and disassembler output into compile facts of CuTe kernels."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mla_var3.errors import ToolchainError
from mla_var3.gpuless.ptx import Kernel
from mla_var3.languages.cute import launches, ptx
from mla_var3.languages.cute.facts import BarrierGroup, CuteFacts, RegisterBudget
from mla_var3.static import sass
from mla_var3.static.lines import line_facts
from mla_var3.static.source import relative_source
from mla_var3.static.steps import step_mix

_TEXT_SECTION = re.compile(r"^\.text\.(\S+):$", re.MULTILINE)
_INFO_SECTION = re.compile(r"^\.nv\.info\.(\S+)$", re.MULTILINE)
_SECTION = re.compile(r"^\.(?:section|text|nv|debug)", re.MULTILINE)
_WARNING = re.compile(r"^ptxas (?:info|warning)\s*: (\(C\d+\).*|.*(?:wgmma|setmaxnreg).*)$", re.M)
_PREFIX = "kernel_cutlass_"
_IN_FUNCTION = re.compile(r" in (?:the )?function '?(\w+)'?")
_PTX_LINE = re.compile(r"(?:in )?around line (\d+)")

_PLACE = re.compile(r'^\s*//## File "([^"]+)", line (\d+)')
_CODE = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Za-z0-9_.]*)")

#: ptxas says in this warning that it waits for every wgmma.
_SERIALIZED = re.compile(r"wgmma.*seriali[sz]", re.IGNORECASE)


@dataclass(frozen=True)
class Printed:
    """All that was printed about one compiled module.

    Attributes:
        ptx: The PTX.
        listing: ``nvdisasm --print-line-info --print-code`` of the cubin.
        usage: ``cuobjdump --dump-resource-usage``.
        elf: ``cuobjdump --dump-elf``.
        ir: The host code in MLIR's LLVM dialect.
        ptxas: What ptxas says of the PTX.
    """

    ptx: str
    listing: str
    usage: str
    elf: str
    ir: str
    ptxas: str


def read_facts(
    base: CuteFacts, printed: Printed, known: Sequence[str] = ()
) -> tuple[CuteFacts, ...]:
    """Facts of every device kernel of a module, in the order of their launches.

    Args:
        base: Arch, target and toolchain.
        printed: What the tools said.
        known: Names of the functions that may be device kernels.

    Raises:
        ToolchainError: A tool printed something else than this release does.
    """
    module = ptx.module(printed.ptx)
    kernels = module.kernels
    listings = _sections(printed.listing, _TEXT_SECTION)
    attributes = _sections(printed.elf, _INFO_SECTION, _SECTION)
    resources = {found.function: found for found in sass.parse_resources(printed.usage)}
    launched = {launch.kernel: launch for launch in launches.parse(printed.ir)}
    for name in kernels:
        if name not in listings or name not in resources or name not in attributes:
            raise ToolchainError(f"the disassemblers say nothing of {name}; their output changed")
    order = [name for name in launched if name in kernels]
    return tuple(
        _kernel(
            base,
            entry=kernels[name],
            version=module.version,
            instructions=sass.parse_listing(listings[name]),
            steps=step_mix(listings[name]),
            resources=resources[name],
            attributes=sass.parse_attributes(attributes[name]),
            reserved=sass.reserved_shared(printed.elf, resources[name]),
            launch=launched.get(name),
            printed=printed,
            name=short_name(name, known),
        )
        for name in [*order, *(name for name in kernels if name not in order)]
    )


def _sections(
    text: str, start: re.Pattern[str], end: re.Pattern[str] | None = None
) -> dict[str, str]:
    """Parts of a listing by the name in their heading."""
    found, starts = {}, list(start.finditer(text))
    for match, after in zip(starts, [*starts[1:], None], strict=True):
        stop = after.start() if after else len(text)
        if end is not None and (closing := end.search(text, match.end())):
            stop = min(stop, closing.start())
        found[match[1]] = text[match.end() : stop]
    return found


def _kernel(
    base: CuteFacts,
    *,
    entry: Kernel,
    version: str,
    instructions: Sequence[sass.Instruction],
    steps: dict[str, int],
    resources: sass.Resources,
    attributes: Mapping[str, tuple[int, ...]],
    reserved: int,
    launch: launches.Launch | None,
    printed: Printed,
    name: str,
) -> CuteFacts:
    attributes = dict(attributes)
    mix = sass.instruction_mix(instructions)
    mma = sass.mma_instructions(instructions)
    threads = _threads(attributes, launch)
    static = resources.shared_bytes - reserved
    dynamic = launch.shared_bytes if launch else None
    warnings = ptxas_warnings(printed.ptxas, entry)
    groups = ptx.barriers(entry)
    mbarriers = attributes.get("NUM_MBARRIERS", (sum(count for count, _ in groups),))[0]
    transactions = ptx.transactions(entry)
    shared = static + (dynamic or 0)
    path = sass.mma_path(mma, on_cuda_cores=False)
    multiplications = _multiplications(instructions, warnings)
    # On Blackwell neither groups of barriers nor their bytes tell a ring from its neighbors.
    told = () if multiplications["tcgen05_mma"] else transactions
    return base.model_copy(
        update={
            "kernel": name,
            "registers": resources.registers,
            "stack_bytes": resources.stack_bytes,
            **_spills(instructions),
            "shared_bytes": shared,
            "dynamic_shared_bytes": dynamic or 0,
            "dynamic_shared_known": dynamic is not None,
            "tensor_memory_columns": tensor_memory(entry),
            "threads_per_block": threads,
            "warps_per_block": -(-threads // 32),
            "blocks_per_cluster": _cluster(attributes, launch),
            "instructions": len(instructions),
            "instruction_mix": mix,
            "step_mix": steps,
            "mma_path": path,
            "mma_instructions": mma,
            "tma_loads": sum(mix.get(name, 0) for name in sass.TMA_LOADS),
            "tma_stores": sum(mix.get(name, 0) for name in sass.TMA_STORES),
            "tma_multicast": _count(instructions, "UTMALDG", "MULTICAST"),
            "async_copies": mix.get("LDGSTS", 0),
            "barriers": attributes.get("NUM_BARRIERS", (0,))[0],
            "mbarriers": mbarriers,
            "barrier_groups": tuple(BarrierGroup(barriers=n, arrivals=a) for n, a in groups),
            "mbarrier_waits": _count(instructions, "SYNCS", "TRYWAIT"),
            "mbarrier_arrivals": _count(instructions, "SYNCS", "ARRIVE"),
            "transaction_bytes": transactions,
            "operand_swizzle": ptx.operand_swizzle(entry),
            "pipeline_stages": stages(groups, mbarriers, told, shared),
            **multiplications,
            "register_budgets": tuple(
                RegisterBudget.model_validate({"direction": way, "registers": count})
                for way, count in ptx.budgets(entry)
            ),
            "ptx_instructions": len(entry.instructions),
            "ptx_version": version,
            "warnings": warnings,
            "lines": tuple(line_facts(instructions)),
        }
    )


def _spills(instructions: Sequence[sass.Instruction]) -> dict[str, int]:
    loads = [i for i in instructions if i.base == "LDL"]
    stores = [i for i in instructions if i.base == "STL"]
    return {
        "spill_loads": len(loads),
        "spill_stores": len(stores),
        "spill_load_bytes": sum(i.bytes_per_thread for i in loads),
        "spill_store_bytes": sum(i.bytes_per_thread for i in stores),
    }


def _multiplications(
    instructions: Sequence[sass.Instruction], warnings: Iterable[str]
) -> dict[str, Any]:
    waits = sass.wgmma_waits(instructions)
    by_family = {"GMMA": 0, "UTCMMA": 0, "MMA": 0}
    for opcode, count in sass.mma_instructions(instructions).items():
        by_family[sass.mma_family(opcode) or ""] += count
    return {
        "wgmma": by_family["GMMA"],
        "tcgen05_mma": by_family["UTCMMA"],
        "warp_mma": by_family["MMA"],
        "wgmma_waits": waits,
        "wgmma_serialized": _serialized(waits, by_family["GMMA"], warnings),
    }


def _count(instructions: Iterable[sass.Instruction], base: str, modifier: str) -> int:
    return sum(
        i.base == base and any(part.startswith(modifier) for part in i.opcode.split("."))
        for i in instructions
    )


def _threads(attributes: dict[str, tuple[int, ...]], launch: launches.Launch | None) -> int:
    if launch is not None and None not in launch.block:
        x, y, z = (extent or 0 for extent in launch.block)
        return x * y * z
    return sass.block_threads(attributes)


def _cluster(attributes: dict[str, tuple[int, ...]], launch: launches.Launch | None) -> int:
    if launch is None or None in launch.cluster:
        return sass.cluster_blocks(attributes)
    x, y, z = (extent or 1 for extent in launch.cluster)
    return x * y * z


def tensor_memory(entry: Kernel) -> int:
    """Columns of tensor memory that a kernel allocates; others of its module may allocate too."""
    try:
        return sass.tensor_memory_columns(entry.body.encode())
    except ToolchainError:  # Allocated by a register that the host or the tiling sets.
        return 0


def stages(
    groups: Sequence[tuple[int, int]],
    mbarriers: int,
    transactions: Sequence[int],
    shared_bytes: int,
) -> int | None:
    """Depth of the deepest ring of TMA loads, as far as barriers and memory tell it.

    A ring of n stages has n barriers that fill up, side by side, each told to expect one stage's
    bytes; where a consumer hands stages back there are n more. So n is the size of a group of
    barriers, or half of it (both kinds may wait for one arrival), and n stages fit the memory.
    The deepest such n is taken.

    With tcgen05 none of this holds, so such a kernel's facts state no depth: barriers that a
    product signals wait for one arrival, as full ones do, and those of the accumulators lie next
    to them; a pair of blocks counts the bytes of both on the barriers of one.

    Args:
        groups: Barriers and arrivals, from :func:`mla_var3.languages.cute.ptx.barriers`.
        mbarriers: All barriers, for a kernel whose groups are not known.
        transactions: Bytes that barriers are told to expect.
        shared_bytes: Shared memory per block.

    Returns:
        The depth; None without such loads, or when several sizes of load share a memory in which
        no group of barriers fits any of them.
    """
    if not transactions or not mbarriers:
        return None
    room = max(shared_bytes // size for size in transactions)
    sizes = [count for count, _ in groups] or [mbarriers]
    depths = {depth for size in sizes for depth in (size, size // 2 if size % 2 == 0 else 0)}
    return max((depth for depth in depths if 0 < depth <= room), default=None)


def ptxas_warnings(text: str, entry: Kernel) -> tuple[str, ...]:
    """What ptxas warns of for a kernel, each once, PTX lines turned into Python ones.

    Args:
        text: What ptxas printed.
        entry: The kernel.
    """
    found = []
    for message in _WARNING.findall(text):
        named = _IN_FUNCTION.search(message)
        if named is None or named[1] == entry.name:
            plain = _IN_FUNCTION.sub("", " ".join(message.split()))
            found.append(_PTX_LINE.sub(lambda match: _python_line(entry, int(match[1])), plain))
    return tuple(dict.fromkeys(found))


def _python_line(entry: Kernel, number: int) -> str:
    """``at file:line`` of the last instruction up to a line of the PTX that has a Python line."""
    place = None
    for instruction in entry.instructions:
        if instruction.number > number:
            break
        file, line = entry.place(instruction)
        if file is not None and line:
            place = f"at {relative_source(file)}:{line}"
    return place or f"around line {number} of the PTX"


def _serialized(waits: int, wgmma: int, warnings: Iterable[str]) -> bool:
    """Whether ptxas says so, or put in waits until there is one per multiplication."""
    texts = list(warnings)
    injected = any("wait_group is injected" in text for text in texts)
    return any(_SERIALIZED.search(text) for text in texts) or (injected and waits >= wgmma > 1)


def short_name(mangled: str, known: Iterable[str] = ()) -> str:
    """The Python name of a device kernel: ``kernel_cutlass_<name>_<module and types>_<number>``.

    The DSL runs all of it into one word, so the name is the longest of those known that fits;
    without one, what stands before the first type that the DSL spells out.

    Args:
        mangled: Name in the PTX.
        known: Names of functions that it may be.
    """
    name = mangled.removeprefix(_PREFIX)
    fitting = [each for each in known if name.startswith(f"{each}_")]
    if fitting:
        return max(fitting, key=len)
    for mark in ("_tensor", "_TiledMMA", "_CopyAtom", "_FakeTensor", "_object_at_", "__"):
        name = name.split(mark, 1)[0]
    return name


def source_map(text: str, listing: str) -> str:
    """JSON: file -> line -> lines of PTX and of the SASS listing that come from it.

    Args:
        text: The PTX.
        listing: The SASS with its line information.
    """
    found: dict[str, dict[int, dict[str, list[int]]]] = {}

    def keep(kind: str, file: str | None, line: int | None, number: int) -> None:
        if file is not None and line:
            lines = found.setdefault(relative_source(file), {}).setdefault(
                line, {"ptx": [], "sass": []}
            )
            lines[kind].append(number)

    for entry in ptx.module(text).kernels.values():
        for made in entry.instructions:
            keep("ptx", *entry.place(made), made.number)
    for number, instruction in numbered(listing):
        keep("sass", instruction.file, instruction.line, number)
    return json.dumps(found, indent=1, sort_keys=True)


def numbered(listing: str) -> Iterator[tuple[int, sass.Instruction]]:
    """Instructions of a listing with the number of the line they stand on, 1-based."""
    file, line = None, None
    for number, raw in enumerate(listing.splitlines(), 1):
        if place := _PLACE.match(raw):
            file, line = place[1], int(place[2])
        elif code := _CODE.match(raw):
            yield number, sass.Instruction(code[1], file, line)
