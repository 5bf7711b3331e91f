"""Parses output of cuobjdump and nvdisasm: SASS instructions, MMA paths and resource usage."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from mla_var3.archs import base_arch
from mla_var3.errors import ToolchainError

#: Tensor-core opcodes by the hardware path they take, fastest first.
#:   UTCMMA  fifth-generation tensor cores: operands and accumulators in shared and tensor memory
#:   GMMA    Hopper warpgroup MMA: operands in shared memory, asynchronous
#:   MMA     warp-level MMA: operands in registers
MMA_FAMILIES = (
    ("UTCMMA", re.compile(r"UTC[A-Z]*MMA")),
    ("GMMA", re.compile(r"[A-Z]GMMA")),
    ("MMA", re.compile(r"[HIBDQO]MMA")),
)

#: The family that full tensor throughput needs, by arch; sm_120 has no wider one than warp MMA.
FAST_FAMILY = {
    "sm_80": "MMA", "sm_86": "MMA", "sm_87": "MMA", "sm_88": "MMA", "sm_89": "MMA",
    "sm_90": "GMMA",
    "sm_100": "UTCMMA", "sm_103": "UTCMMA", "sm_107": "UTCMMA", "sm_110": "UTCMMA",
    "sm_120": "MMA", "sm_121": "MMA",
}  # fmt: skip

_INSTRUCTION = re.compile(
    r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?(?P<opcode>[A-Z][A-Za-z0-9_.]*)"
)
# Twelve digits are more lines and bytes than there are, and fewer than Python refuses to convert.
_LINE = re.compile(r'^\s*//## File "(?P<file>[^"]+)", line (?P<line>\d{1,12})\b')
#: An mbarrier that is initialized, by its place in shared memory.
_BARRIER = re.compile(r"SYNCS\.EXCH\.64 URZ, \[UR\d{1,3}(?:\+(0x[0-9a-f]{1,8}))?\]")
BARRIER_BYTES = 8
_ESCAPED = re.compile(r"(?:\\[0-7]{3})+")
_RESERVED = re.compile(r"^\.nv\.shared\.reserved\.", re.MULTILINE)
_TENSOR_MEMORY = re.compile(rb"tcgen05\.alloc\.[^;]{0,4000},\s*(%r\d{1,9});")
_USAGE = re.compile(r"Function (?P<name>\S+):[ \t]*\n\s*(?P<items>REG:.*)")
_ITEM = re.compile(r"([A-Z]+):(\d{1,12})\b")
_NUMBER = re.compile(r"0x[0-9a-f]{1,16}\b|\b\d{1,12}\b")
_ATTRIBUTE = re.compile(
    r"Attribute:[ \t]*EIATTR_(?P<name>\w+)[ \t]*\n\s*Format:[ \t]*\w+[ \t]*\n"
    r"\s*Value:(?P<value>[^\n]*)"
)


@dataclass(frozen=True)
class Instruction:
    """One SASS instruction.

    Attributes:
        opcode: With its modifiers, such as ``HGMMA.64x64x16.F32.BF16``.
        file: Source file as the compiler was given it; None without line information.
        line: Source line, 1-based; None without line information.
    """

    opcode: str
    file: str | None = None
    line: int | None = None

    @property
    def base(self) -> str:
        """The opcode without its modifiers."""
        return self.opcode.split(".", 1)[0]

    @property
    def bytes_per_thread(self) -> int:
        """Bytes that one thread moves, by the width modifier of a load or store (else 32 bits)."""
        widths = {"128": 16, "64": 8, "U16": 2, "S16": 2, "U8": 1, "S8": 1}
        return next((widths[m] for m in self.opcode.split(".")[1:] if m in widths), 4)


@dataclass(frozen=True)
class Resources:
    """What ``cuobjdump --dump-resource-usage`` says of one kernel (bytes; registers per thread)."""

    function: str
    registers: int
    stack_bytes: int
    shared_bytes: int


def mma_family(opcode: str) -> str | None:
    """Hardware path of a tensor-core opcode; None for any other opcode."""
    base = opcode.split(".", 1)[0]
    return next((name for name, pattern in MMA_FAMILIES if pattern.fullmatch(base)), None)


def _unescaped(file: str) -> str:
    r"""A file name as it is; nvdisasm writes each byte beyond ASCII as ``\303``."""
    return _ESCAPED.sub(
        lambda m: bytes(int(byte, 8) & 0xFF for byte in m[0].split("\\")[1:]).decode(
            "utf-8", "replace"
        ),
        file,
    )


def parse_listing(text: str) -> list[Instruction]:
    """Instructions of ``nvdisasm --print-line-info --print-code``, padding NOPs left out.

    Raises:
        ToolchainError: The text holds no instruction.
    """
    found: list[Instruction] = []
    file: str | None = None
    line: int | None = None
    for raw in text.splitlines():
        if match := _INSTRUCTION.match(raw):
            if match["opcode"] != "NOP":
                found.append(Instruction(match["opcode"], file, line))
        elif match := _LINE.match(raw):
            file, line = _unescaped(match["file"]), int(match["line"])
    if not found:
        raise ToolchainError("nvdisasm printed no instruction; its output has changed")
    return found


def instruction_mix(instructions: Iterable[Instruction]) -> dict[str, int]:
    """Count by base opcode, most frequent first, then by name."""
    return _ordered(Counter(i.base for i in instructions))


def mma_instructions(instructions: Iterable[Instruction]) -> dict[str, int]:
    """Count of tensor-core instructions by full opcode, most frequent first, then by name."""
    return _ordered(Counter(i.opcode for i in instructions if mma_family(i.opcode)))


def wgmma_waits(instructions: Iterable[Instruction]) -> int:
    """Waits for warpgroup multiplications (``WARPGROUP.DEPBAR``)."""
    return sum(i.opcode.startswith("WARPGROUP.DEPBAR") for i in instructions)


def ring_depth(listing: str) -> int:
    """Places of the deepest ring of loads, as a compiler sets up its barriers; 0 without barriers.

    A ring of n places has n barriers that loads complete and, behind them in memory, n that the
    readers complete. The tile compiler initializes them place by place: barrier i of the first
    kind, then barrier i of the second, n barriers further on.

    Args:
        listing: ``nvdisasm --print-code`` of one kernel.
    """
    places = [int(match or "0", 16) for match in _BARRIER.findall(listing)]
    deepest = min(1, len(places))
    for at in range(len(places) - 1):
        depth, rest = divmod(places[at + 1] - places[at], BARRIER_BYTES)
        ring = range(places[at], places[at] + depth * BARRIER_BYTES, BARRIER_BYTES)
        wanted = [place for first in ring for place in (first, first + depth * BARRIER_BYTES)]
        if depth > deepest and not rest and places[at : at + 2 * depth] == wanted:
            deepest = depth
    return deepest


def _ordered(counts: Counter[str]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def parse_resources(text: str) -> list[Resources]:
    """Kernels of ``cuobjdump --dump-resource-usage``.

    Raises:
        ToolchainError: The text names no kernel, or lacks a figure.
    """
    found = []
    for match in _USAGE.finditer(text):
        items = {key: int(value) for key, value in _ITEM.findall(match["items"])}
        try:
            found.append(Resources(match["name"], items["REG"], items["STACK"], items["SHARED"]))
        except KeyError as error:
            raise ToolchainError(
                f"cuobjdump states no {error.args[0]} for {match['name']:.60}; "
                "its output has changed"
            ) from error
    if not found:
        raise ToolchainError("cuobjdump names no kernel; its output has changed")
    return found


def parse_attributes(text: str) -> dict[str, tuple[int, ...]]:
    """Integer attributes of the kernel in ``cuobjdump --dump-elf``, by name less ``EIATTR_``.

    Attributes that occur more than once (one a parameter) keep their first value.
    """
    found: dict[str, tuple[int, ...]] = {}
    for match in _ATTRIBUTE.finditer(text):
        numbers = _NUMBER.findall(match["value"])
        found.setdefault(match["name"], tuple(int(n, 16 if "x" in n else 10) for n in numbers))
    return found


def block_threads(attributes: dict[str, tuple[int, ...]]) -> int:
    """Threads per block: REQNTID where the kernel fixes it (as cuTile's do), else MAXNTID.

    Raises:
        ToolchainError: The cubin states neither.
    """
    for name in ("REQNTID", "MAX_THREADS", "MAXNTID"):
        if extents := attributes.get(name):
            threads = 1
            for extent in extents:
                threads *= extent
            return threads
    raise ToolchainError("the cubin states no block size (neither REQNTID nor MAXNTID)")


#: Bytes of shared memory that the system keeps of every block from sm_90 on. ptxas counts them in
#: a kernel's shared section: section less PTX declaration is 1024 in every such cubin seen.
RESERVED_SHARED = 1024

#: Opcodes of the tensor memory accelerator and of bulk copies.
TMA_LOADS = ("UTMALDG", "UBLKCP", "UTMALST")
TMA_STORES = ("UTMASTG", "UTMAREDG", "UBLKRED")


def reserved_shared(elf: str, resources: Resources) -> int:
    """Bytes of ``resources.shared_bytes`` that are the system's reserve and not the kernel's.

    Args:
        elf: ``cuobjdump --dump-elf`` of the cubin.
        resources: The kernel's resources.
    """
    return RESERVED_SHARED if resources.shared_bytes and _RESERVED.search(elf) else 0


def tensor_memory_columns(cubin: bytes) -> int:
    """Columns of tensor memory a block allocates; 0 when it allocates none.

    The SASS hides the size in a register; the PTX that ptxas was given, which a cubin with line
    information carries, states it.

    Raises:
        ToolchainError: An allocation whose size is not a constant.
    """
    columns = 0
    for match in _TENSOR_MEMORY.finditer(cubin):
        size = re.search(rb"mov\.[bu]32\s+" + re.escape(match[1]) + rb",\s*(\d{1,9});", cubin)
        if size is None:
            raise ToolchainError("the cubin allocates an unknown amount of tensor memory")
        columns += int(size[1])
    return columns


def cluster_blocks(attributes: dict[str, tuple[int, ...]]) -> int:
    """Blocks a cluster; 1 when the kernel is compiled for none."""
    extents = attributes.get("CTA_PER_CLUSTER") or attributes.get("CLUSTER_DIM") or (1,)
    blocks = 1
    for extent in extents:
        blocks *= max(extent, 1)
    return blocks


def mma_path(mma: dict[str, int], *, on_cuda_cores: bool) -> str:
    """Base opcodes of the matrix multiplications, fastest family first, joined by ``+``.

    Args:
        mma: Tensor-core instructions by full opcode.
        on_cuda_cores: Whether a multiplication was left to FMA instructions.

    Returns:
        Such as ``HGMMA``, ``HGMMA+HMMA``, ``FMA``; ``none`` without any multiplication.
    """
    families = [name for name, _ in MMA_FAMILIES]
    bases = {opcode.split(".", 1)[0] for opcode in mma}
    ordered = sorted(bases, key=lambda base: (families.index(mma_family(base) or ""), base))
    return "+".join([*ordered, *(["FMA"] if on_cuda_cores else [])]) or "none"


def mma_note(path: str, arch: str) -> str | None:
    """Why a path is not the arch's fast one; None when it is, or nothing is multiplied.

    Args:
        path: As :func:`mma_path` gives it.
        arch: Such as ``sm_90``.
    """
    fast = FAST_FAMILY.get(base_arch(arch))
    slow = [part for part in path.split("+") if part != "none" and mma_family(part) != fast]
    if not slow or fast is None:
        return None
    names = {"UTCMMA": "UTCHMMA (tensor memory)", "GMMA": "HGMMA (warpgroup)", "MMA": "HMMA"}
    return (
        f"matrix multiplications fall back to {' and '.join(slow)}, where {arch} has {names[fast]}"
    )


#: Rates over that of the arch's fast instructions, per clock and SM. Tensor cores do 4096 dense
#: FLOPs of 16 bits on sm_90, 2048 on sm_80 (NVIDIA H100 and A100 whitepapers), CUDA cores 256 of
#: fp32 on sm_90. Instructions of the older kind are taken at the older arch's rate.
_RATES = {"sm_90": {"MMA": 0.5, "FMA": 256 / 4096}, "sm_80": {"FMA": 128 / 2048}}
_RATES |= {"sm_100": {"MMA": 0.25, "FMA": 256 / 8192}}


def rate(path: str, arch: str) -> float | None:
    """Tensor rate of the slowest part of a path over that of the arch's fast one; None if unknown.

    Args:
        path: As :func:`mma_path` gives it.
        arch: Such as ``sm_90``.
    """
    base = base_arch(arch)
    fast = FAST_FAMILY.get(base)
    found = []
    for part in path.split("+"):
        family = "FMA" if part == "FMA" else mma_family(part)
        if family != fast:
            known = _RATES.get(base, {}).get(family or "")
            if known is None:
                return None
            found.append(known)
    return min(found, default=1.0)
