"""PTX parser: turns text into kernels with instructions, Python lines, registers and variables."""

from __future__ import annotations

import contextlib
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from mla_var3.errors import EmulatorError, UnknownNameError

#: Bounds on what a text may ask for; beyond them it is refused in one sentence.
MAX_TEXT = 64 << 20
MAX_REGISTERS = 1 << 20
MAX_INSTRUCTIONS = 1 << 20
MAX_SHARED = 232448
MAX_LOCAL = 512 << 10
MAX_GLOBAL = 256 << 20
#: Bytes of parameters that a launch takes, and of alignment that a compiler asks for.
MAX_PARAMETERS = 32764
MAX_ALIGNMENT = 1 << 16

TYPE = r"\.(pred|[busf]\d+)"
ENTRY = re.compile(r"\.entry\s+([\w$]+)")
PARAMETER = re.compile(
    rf"\.param\s+(?:\.align\s+(\d+)\s+)?{TYPE}\s+(?:\.ptr(?:\s+\.\w+(?:\s+\d+)?)*\s+)?([\w$]+)(?:\[(\d+)\])?"
)
VARIABLE = re.compile(
    r"(?P<extern>\.extern\s+)?(?:\.visible\s+|\.weak\s+)?\.(?P<space>global|const|shared|local|param)"
    rf"\s+(?:\.attribute\([^)]*\)\s*)?(?:\.align\s+(?P<align>\d+)\s+)?{TYPE}\s+(?P<name>[\w$]+)"
    r"\s*(?P<array>(?:\[\d*\])*)\s*(?:=\s*(?P<init>.*))?$",
    re.S,
)
#: An operand's words; beside them it has signs, brackets and commas, and no word follows another or
#: is called: whatever else stands there is refused, since operands name what lowered code reads.
WORD = re.compile(r"[%$\w][\w$.]*", re.ASCII)
SHAPE = re.compile(r"(?!.*(?:w|[\])}])[w\[({!])[-w+|,!\[\](){}]+")
OPCODE = re.compile(r"([a-z][\w.:]*)\s*", re.ASCII)
#: Widest type that a text may name; e2m1x2 and its like have their digits read as one number.
WIDEST = 1024
#: Components of a vector register; r, g, b and a are other names for the same.
COMPONENTS = "xyzw"
#: What Python says of text that cannot be what it stands for.
FAULTS = (
    LookupError, ValueError, TypeError, AttributeError, ArithmeticError, MemoryError, struct.error,
)  # fmt: skip
LOC = re.compile(r"\.loc\s+(\d+)\s+(\d+)\s+(\d+)(?:.*inlined_at\s+(\d+)\s+(\d+))?")


def bits(kind: str) -> int:
    """Width in bits of a PTX type such as ``b32``; a predicate has 1.

    Raises:
        EmulatorError: No type is that wide.
    """
    if kind == "pred":
        return 1
    digits = re.sub(r"[^0-9]", "", kind)
    if len(digits) > 4 or int(digits or 0) > WIDEST:
        raise EmulatorError(f"{kind[:40]!r} is not a type of PTX")
    return int(digits or 0)


@dataclass(frozen=True)
class Parameter:
    """A kernel parameter: where it lies in the parameter block, in bytes."""

    name: str
    offset: int
    size: int


@dataclass(frozen=True)
class Variable:
    """A variable in memory; ``size`` in bytes, 0 for dynamic shared memory."""

    name: str
    space: str
    align: int
    size: int
    init: bytes = b""


@dataclass(frozen=True)
class Instruction:
    """One instruction.

    ``line`` is (file number, line) in Python, and ``own`` whether a statement stands there: a
    compiler gives line or column 0 to what it has no place for. ``number`` is the line of the PTX
    text where it starts; ``guard`` a predicate register, obeyed when false if ``negated``.
    """

    pc: int
    op: str
    args: tuple[str, ...]
    guard: str | None
    negated: bool
    line: tuple[int, int] | None
    text: str
    parts: tuple[str, ...] = ()
    number: int = 0
    own: bool = False


@dataclass
class Kernel:
    """One entry of a module."""

    name: str
    parameters: list[Parameter] = field(default_factory=list)
    threads: tuple[int, int, int] | None = None
    registers: dict[str, str] = field(default_factory=dict)
    ranges: dict[str, tuple[int, str]] = field(default_factory=dict)
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    tables: dict[str, list[str]] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    files: dict[int, str] = field(default_factory=dict)
    body: str = ""

    def place(self, instruction: Instruction) -> tuple[str | None, int | None]:
        """File and line in Python that an instruction comes from."""
        if not instruction.line:
            return None, None
        number, line = instruction.line
        return self.files.get(number), line or None

    @property
    def parameter_bytes(self) -> int:
        return max((p.offset + p.size for p in self.parameters), default=0)

    def register_type(self, name: str) -> str | None:
        """The type a register was declared with, or None for what is not a register."""
        if (kind := self.registers.get(name)) is not None:
            return kind
        match = re.fullmatch(r"(%[A-Za-z_$]+)(\d+)", name)
        if match and match[1] in self.ranges and int(match[2]) < self.ranges[match[1]][0]:
            return self.ranges[match[1]][1]
        return None


@dataclass
class Module:
    """A PTX text: its kernels by name, its version, target and module-level variables."""

    version: str
    target: str
    kernels: dict[str, Kernel]
    variables: dict[str, Variable]

    def kernel(self, name: str | None = None) -> Kernel:
        """The kernel of that name; the only one where no name is given.

        Raises:
            UnknownNameError: There is no such kernel, or there are several and none is named.
        """
        if name is None and len(self.kernels) == 1:
            return next(iter(self.kernels.values()))
        if name not in self.kernels:
            raise UnknownNameError("kernel", str(name), list(self.kernels))
        return self.kernels[name]


def parse(text: str) -> Module:
    """Read a PTX text.

    Raises:
        EmulatorError: It is not PTX, is cut short, or asks for absurd sizes.
    """
    with refused("the text is not PTX"):
        return _parse(text)


@contextlib.contextmanager
def refused(what: str) -> Iterator[None]:
    """Raise what foreign text makes of Python as an EmulatorError that begins with ``what``."""
    try:
        yield
    except FAULTS as fault:
        said = " ".join(str(fault).split())[:100]
        raise EmulatorError(f"{what}: {type(fault).__name__}: {said}") from fault


def _parse(text: str) -> Module:
    if len(text) > MAX_TEXT:
        raise EmulatorError(f"the PTX text has {len(text)} bytes, over the {MAX_TEXT} allowed")
    if not (target := re.search(r"^\s*\.target\s+(\w+)", text, re.M)):
        raise EmulatorError("the text is not PTX: it has no .target line")
    version = re.search(r"^\s*\.version\s+(\S+)", text, re.M)
    files = {int(n): f for n, f in re.findall(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', text, re.M)}
    text = _uncommented(text)
    outside, bodies = _entries(text)
    variables = {v.name: v for v in _variables(outside)}
    kernels = {}
    for name, head, body, first in bodies:
        kernel = _Body(name, head, body, files, first).kernel
        kernel.variables = {**variables, **kernel.variables}
        _bounded(kernel)
        kernels[name] = kernel
    if not kernels:
        raise EmulatorError("the PTX has no .entry: there is no kernel in it")
    return Module(version[1] if version else "", target[1], kernels, variables)


def parameters(text: str) -> dict[str, list[Parameter]]:
    """Parameters of every kernel of a PTX text by its name, without reading its instructions."""
    _, bodies = _entries(_uncommented(text))
    return {name: _Body(name, head, "", {}, 1).kernel.parameters for name, head, *_ in bodies}


def _uncommented(text: str) -> str:
    """The text without comments, of as many lines; inline assembly stands between directives."""
    text = re.sub(r"(?m)^[ \t]*\.file\s.*$", "", text)
    text = re.sub(r"(?m)^[ \t]*//\s*(begin|end) inline asm.*$", r".asm \1", text)
    text = re.sub(r"//[^\n]*", "", text)
    return re.sub(r"/\*.*?\*/", lambda m: " " + "\n" * m[0].count("\n"), text, flags=re.S)


def _entries(text: str) -> tuple[str, list[tuple[str, str, str, int]]]:
    """What stands outside of kernels; and name, head, body and first line of the body of each."""
    outside, bodies, at = [], [], 0
    for match in ENTRY.finditer(text):
        opening = text.find("{", match.end())
        if opening < 0:
            raise EmulatorError(f"the PTX ends before the body of kernel {match[1]:.60}")
        closing = _closing(text, opening, match[1])
        outside.append(text[at : match.start()])
        head, body = text[match.end() : opening], text[opening + 1 : closing]
        bodies.append((match[1], head, body, text.count("\n", 0, opening) + 1))
        at = closing + 1
    return "".join([*outside, text[at:]]), bodies


def _closing(text: str, opening: int, name: str) -> int:
    depth = 0
    for match in re.compile(r"[{}]").finditer(text, opening):
        depth += 1 if match[0] == "{" else -1
        if depth == 0:
            return match.start()
    raise EmulatorError(f"the PTX ends inside kernel {name:.60}: a closing brace is missing")


def _variables(text: str) -> Iterator[Variable]:
    # A .section of debug data and a .func have braces; variables' initial values too.
    text = re.sub(r"(?s)\.section\b.*?\n\s*\}", "", text)
    for statement in text.split(";"):
        if match := re.search(r"\.(?:global|const|shared)\s", statement):
            start = statement.rfind("\n", 0, match.start()) + 1
            if variable := _variable(statement[start:].strip()):
                yield variable


def _variable(statement: str) -> Variable | None:
    match = VARIABLE.match(statement)
    if not match:
        return None
    width = bits(match[4]) // 8 or 1
    dimensions = re.findall(r"\[(\d*)\]", match["array"])
    count = 1
    for dimension in dimensions:
        count *= int(dimension or 0)
    init = _initial(match["init"] or "", width, count)
    align = int(match["align"] or width)
    return Variable(match["name"], match["space"], align, width * count, init)


def _initial(text: str, width: int, count: int) -> bytes:
    values = re.findall(r"0[xX][0-9a-fA-F]+|-?\d+", text)
    mask = (1 << 8 * width) - 1
    return b"".join((int(v, 0) & mask).to_bytes(width, "little") for v in values[:count])


def _bounded(kernel: Kernel) -> None:
    if kernel.parameter_bytes > MAX_PARAMETERS:
        raise EmulatorError(
            f"kernel {kernel.name:.60} has {kernel.parameter_bytes} bytes of parameters, over "
            f"{MAX_PARAMETERS}"
        )
    if (widest := max((v.align for v in kernel.variables.values()), default=0)) > MAX_ALIGNMENT:
        raise EmulatorError(
            f"kernel {kernel.name:.60} aligns to {widest} bytes, over {MAX_ALIGNMENT}"
        )
    spaces = (
        ("shared", MAX_SHARED), ("local", MAX_LOCAL), ("global", MAX_GLOBAL), ("const", MAX_GLOBAL),
        ("param", MAX_PARAMETERS),
    )  # fmt: skip
    for space, most in spaces:
        total = sum(v.size for v in kernel.variables.values() if v.space == space)
        if total > most:
            raise EmulatorError(
                f"kernel {kernel.name:.60} asks for {total} bytes of {space} memory, over {most}"
            )


def split_arguments(text: str) -> list[str]:
    """``%r1, {%r2, %r3}, [%r4+8]`` to its three operands."""
    out, depth, start = [], 0, 0
    for i, char in enumerate(text):
        if char in "[{(":
            depth += 1
        elif char in "]})":
            depth -= 1
        elif char == "," and depth == 0:
            out.append(text[start:i].strip())
            start = i + 1
    last = text[start:].strip()
    return [*out, last] if last else out


class _Body:
    """Reads one kernel, statement by statement, keeping track of scopes and of lines."""

    def __init__(self, name: str, head: str, body: str, files: dict[int, str], first: int) -> None:
        self.kernel = Kernel(name, files=files, body=body)
        self.number = first
        self.scopes: list[dict[str, str]] = [{}]
        self.vectors: dict[str, list[str]] = {}
        self.numbers = [0]
        self.count = 0
        self.line: tuple[int, int] | None = None
        self.own = False
        self.inline = False
        self.targets: list[tuple[int, list[int]]] = []
        self._head(head)
        self._lines(body, first)
        self._resolve()

    def _head(self, head: str) -> None:
        offset = 0
        for align, kind, name, array in PARAMETER.findall(head):
            width = bits(kind) // 8
            size = width * int(array) if array else width
            step = int(align or width)
            offset = -(-offset // step) * step
            self.kernel.parameters.append(Parameter(name, offset, size))
            offset += size
        if found := re.search(r"\.(?:reqntid|maxntid)\s+([\d,\s]+)", head):
            sizes = [int(x) for x in found[1].split(",") if x.strip()]
            if ".reqntid" in head:
                self.kernel.threads = (*sizes, 1, 1)[:3]  # type: ignore[assignment]

    def _lines(self, body: str, first: int) -> None:
        pending = ""
        for number, raw in enumerate(body.split("\n"), first):
            line = raw.strip()
            if not line:
                continue
            if line.split(None, 1)[0] in (".loc", ".asm", ".pragma"):
                self._directive(line)
            else:
                self.number = self.number if pending else number
                pending = self._statements(f"{pending} {line}".strip())
        if pending:
            raise EmulatorError(
                f"the PTX ends inside a statement of kernel {self.kernel.name:.60}: "
                f"{pending[:60]!r}"
            )

    def _directive(self, line: str) -> None:
        if line.startswith(".asm"):
            self.inline = "begin" in line
        elif not self.inline and (match := LOC.match(line)):
            # Inside inline assembly the counters are those of the assembly's own text.
            self.line = (int(match[1]), int(match[2]))
            self.own = int(match[2]) > 0 and int(match[3]) > 0

    def _statements(self, text: str) -> str:
        """Take every whole statement from ``text``; what is left is not finished yet."""
        while text:
            if text[0] == "{":
                self.count += 1
                self.numbers.append(self.count)
                self.scopes.append({})
                text = text[1:].lstrip()
            elif text[0] == "}":
                self.scopes.pop()
                self.numbers.pop()
                text = text[1:].lstrip()
            elif label := re.match(r"([$\w]+)\s*:(?!:)\s*", text):
                self._label(label[1])
                text = text[label.end() :]
            else:
                end = text.find(";")
                if end < 0:
                    return text
                self._statement(text[:end].strip())
                text = text[end + 1 :].lstrip()
        return ""

    def _label(self, name: str) -> None:
        self.kernel.labels[f"{name}@{self.numbers[-1]}"] = len(self.kernel.instructions)
        self.last_label = name

    def _statement(self, text: str) -> None:
        if not text:
            return
        if text.startswith(".reg"):
            self._registers(text)
        elif text.startswith(".branchtargets"):
            self.kernel.tables[self.last_label] = split_arguments(text.split(None, 1)[1])
        elif text.startswith("."):
            if variable := _variable(text):
                # Each scope has its own parameters of calls.
                name = f"{variable.name}@{self.numbers[-1]}"
                self.scopes[-1][variable.name] = name
                self.kernel.variables[name] = Variable(
                    name, variable.space, variable.align, variable.size, variable.init
                )
        else:
            self._instruction(text)

    def _registers(self, text: str) -> None:
        _, kind, names = text.split(None, 2)
        kind = kind.lstrip(".")
        if vector := re.fullmatch(r"v([24])", kind):
            self._vectors(int(vector[1]), names)
            return
        if kind == "b128":  # Two halves.
            self._vectors(2, f".b64 {names}")
            return
        for name in (n.strip() for n in names.split(",")):
            many = re.fullmatch(r"(%?\w*?[A-Za-z_$])<(\d+)>", name)
            if many and int(many[2]) > MAX_REGISTERS:
                raise EmulatorError(
                    f"kernel {self.kernel.name:.60} declares {many[2]:.20} registers, over "
                    f"{MAX_REGISTERS}"
                )
            if many and name.startswith("%"):
                self.kernel.ranges[many[1]] = (int(many[2]), kind)
                continue
            # Names of a block of assembly that somebody wrote by hand.
            for own in [f"{many[1]}{i}" for i in range(int(many[2]))] if many else [name]:
                unique = f"{own}@{self.numbers[-1]}"
                self.scopes[-1][own] = unique
                self.kernel.registers[unique] = kind

    def _vectors(self, count: int, text: str) -> None:
        """Registers of several components, each a register of its own."""
        kind, names = text.split(None, 1)
        for name in (n.strip() for n in names.split(",")):
            many = re.fullmatch(r"([%\w$]+?)<(\d{1,4})>", name)
            for each in [f"{many[1]}{i}" for i in range(int(many[2]))] if many else [name]:
                self.vectors[each] = [f"{each}${c}" for c in COMPONENTS[:count]]
                self._registers(f".reg {kind} {', '.join(self.vectors[each])}")

    def _parted(self, operands: str) -> str:
        """Operands with components by their own names, and whole vectors as lists of those."""

        def component(match: re.Match[str]) -> str:
            parts = self.vectors.get(match[1])
            if parts is None:
                return match[0]
            if match[2] is None:
                return f"{{{', '.join(parts)}}}"
            return parts["xyzwrgba".index(match[2][1]) % 4]

        return re.sub(r"([%A-Za-z_$][\w$]*)(\.[xyzwrgba]\b)?", component, operands)

    def _renamed(self, token: str) -> str:
        for scope in reversed(self.scopes):
            if token in scope:
                return scope[token]
        return token

    def _instruction(self, text: str) -> None:
        pc = len(self.kernel.instructions)
        if pc >= MAX_INSTRUCTIONS:
            raise EmulatorError(f"kernel {self.kernel.name:.60} has over {pc} instructions")
        guard, negated, rest = None, False, text
        if match := re.match(r"@(!?)\s*([%$\w]+)\s+", text):
            negated, guard, rest = bool(match[1]), self._renamed(match[2]), text[match.end() :]
        match = OPCODE.match(rest)
        if not match:
            raise EmulatorError(f"this is not a PTX statement: {text[:60]!r}")
        op, operands = match[1], rest[match.end() :]
        if self.vectors:
            operands = self._parted(operands)
        for operand in split_arguments(operands):
            if not SHAPE.fullmatch("".join(WORD.sub("w", operand).split())):
                raise EmulatorError(f"this is not an operand of PTX: {operand[:60]!r}")
        if any(self.scopes):
            operands = re.sub(
                r"(?<![\w$.@])[%$A-Za-z_][\w$]*", lambda m: self._renamed(m[0]), operands
            )
        if op.startswith(("bra", "brx")):
            self.targets.append((pc, list(self.numbers)))
        self.kernel.instructions.append(
            Instruction(
                pc,
                op,
                tuple(split_arguments(operands)),
                guard,
                negated,
                self.line,
                " ".join(text.split()),
                tuple(op.split(".")),
                self.number,
                self.own,
            )
        )

    def _resolve(self) -> None:
        """Branch targets to the label of the innermost scope that has it."""
        for pc, numbers in self.targets:
            old = self.kernel.instructions[pc]
            for name in old.args[-1:] if old.op.startswith("bra") else ():
                found = [f"{name}@{n}" for n in reversed(numbers)]
                label = next((f for f in found if f in self.kernel.labels), None)
                if label is None:
                    raise EmulatorError(
                        f"there is no label {name!r:.60} in kernel {self.kernel.name:.60}"
                    )
                self.kernel.instructions[pc] = replace(old, args=(label,))
        tables = self.kernel.tables
        for key, names in list(tables.items()):
            tables[key] = [self._anywhere(n) for n in names]

    def _anywhere(self, name: str) -> str:
        for label in self.kernel.labels:
            if label.rpartition("@")[0] == name:
                return label
        raise EmulatorError(f"there is no label {name!r:.60} in kernel {self.kernel.name:.60}")
