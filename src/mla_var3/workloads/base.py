"""Base classes of workloads: ``Problem`` (axes, inputs, reference, cost model) and ``Workload``.

A problem knows nothing of kernels. A kernel version's plan is a problem together with how it is
launched (``mla_var3.runtime.plan.KernelPlan``).
"""

from __future__ import annotations

import dataclasses
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, get_type_hints

from mla_var3.devices import Ceilings, Machine
from mla_var3.errors import PlanError
from mla_var3.evidence import Scalar

if TYPE_CHECKING:
    import torch

#: Element types by the short name that problems and records use; torch's names are taken too.
DTYPES: Mapping[str, str] = {"bf16": "bfloat16", "fp16": "float16"}
SEED = 20260101


def option(default: Any, help: str, **metadata: Any) -> Any:
    """Declare a field once; its flag, default and help text derive from this.

    Args:
        default: The default value.
        help: One line for ``--help`` and the CLI reference: the meaning, with its unit.
        metadata: Further metadata; ``minimum`` is checked by ``validate``, ``tries`` are the values
            that problems made for ``check`` take, and ``near`` is the step by which these move.
    """
    return dataclasses.field(default=default, metadata={"help": help, **metadata})


def check_minima(obj: Any, error: type[Exception], prefix: str = "") -> None:
    """Raise ``error`` for the first field of the dataclass ``obj`` below its declared minimum.

    Args:
        obj: The dataclass.
        error: What to raise.
        prefix: What stands before the field's name in the message.
    """
    for field in dataclasses.fields(obj):
        value, minimum = getattr(obj, field.name), field.metadata.get("minimum")
        if minimum is not None and value is not None and not value >= minimum:
            raise error(f"{prefix}{field.name}={value} is below {minimum}")


@dataclass(frozen=True)
class Cost:
    """Work of one stage: ``flops`` (multiply-add = 2) and ``bytes`` moved through DRAM."""

    flops: int
    bytes: int

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.flops + other.flops, self.bytes + other.bytes)


@dataclass(frozen=True)
class Tolerance:
    """How far an output may be from its reference.

    Attributes:
        whole: Largest error over the whole output.
        row: Largest error of any one row.
        kind: ``relative`` to the norm of the reference, or ``absolute`` element by element.
    """

    whole: float
    row: float
    kind: Literal["relative", "absolute"] = "relative"


#: Pieces that keys, blocks and the like are cut into by problems made for ``check``.
PIECES = (None, 1, 3, 7, 37)
#: Most FLOPs, and most steps of tiles, of such a problem: a second on one core.
MOST_FLOPS, MOST_STEPS = 4e8, 400
#: Elements of a tile along an axis, where nobody knows how a kernel cuts it.
USUAL_TILE = 64
#: How often chance is asked for such a problem.
MOST_DRAWS = 400
#: By what part of itself an extent moves at most, how often chance is asked, and what part of its
#: steps a problem may take more then.
NEAR, NEAR_DRAWS, NEAR_STEPS = 3, 6, 8

#: Largest accepted ||out - ref|| / ||ref|| by dtype. Rounding to bf16 moves a value by
#: up to 2**-8 of itself, 1.7e-3 of the norm over normal draws. Outputs carry that, and operands
#: rounded before a second product as much again; fp16 has three more bits, fp8 (e4m3) four fewer.
RELATIVE = {"bf16": 4e-3, "fp16": 6e-4, "fp8": 6.4e-2}
#: A single row may err by this factor more than the whole (fewer terms average out).
ROW_FACTOR = 3.0


@dataclass(frozen=True, kw_only=True)
class Problem(ABC):
    """Sizes and element type of something to compute; its fields are the axes and the flags."""

    #: What one run of it covers, as the end of a sentence; times of different problems of one
    #: workload compare only together with this.
    covers: ClassVar[str]
    #: Whether its inputs are stored in fewer bytes than those of others of the same sizes.
    smaller: ClassVar[bool] = False
    #: Whether rows of its inputs lie in the order of their axes, if not one after the other.
    in_order: ClassVar[bool] = False
    #: Element types that it may have, and how torch names them.
    dtypes: ClassVar[Mapping[str, str]] = DTYPES
    #: Outputs that are maxima: a GPU's passes over NaN, and the reference's does not.
    maxima: ClassVar[frozenset[str]] = frozenset()

    dtype: str = option("bf16", "element type of inputs and outputs: bf16 or fp16")
    #: The device that open sizes and grids were made for; None before ``resolve``.
    machine: Machine | None = dataclasses.field(default=None, metadata={"hidden": True})

    def __post_init__(self) -> None:
        short = {torch_name: name for name, torch_name in self.dtypes.items()}
        object.__setattr__(self, "dtype", short.get(self.dtype, self.dtype))

    @abstractmethod
    def prepare_inputs(self, device: str | torch.device = "cpu") -> tuple[torch.Tensor, ...]:
        """Random inputs on ``device``; on ``"meta"`` shapes and strides only."""

    @abstractmethod
    def reference_fn(self, *inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        """Outputs by name, computed by plain torch in fp32 or better from the same inputs."""

    @abstractmethod
    def _algorithmic_flops_bytes(self, tiling: Any = None) -> Cost:
        """Least work at these sizes: the cost model."""

    def least_costs(self) -> Sequence[Cost]:
        """Work of each way to get the same outputs that the problem leaves open.

        The bound of a problem is the least time of them, whichever way a kernel takes.
        """
        return (self._algorithmic_flops_bytes(),)

    @abstractmethod
    def check_plans(self) -> list[Self]:
        """Small variants that together exercise every path; run by ``check``."""

    @abstractmethod
    def shrunk(self) -> Self:
        """The same kind of problem, small enough to run on a CPU within a second or so."""

    def tries(self) -> dict[str, Sequence[Any]]:
        """Values that problems made of this one try, by field; those that it refuses are left out.

        A value that only other values allow, as a large one does, is taken with these.
        """
        found = {field.name: self._tries(field) for field in dataclasses.fields(self)}
        return {
            name: own
            for name, values in found.items()
            if (own := [v for v in values if self._takes(name, v)])
        }

    def _takes(self, name: str, value: Any) -> bool:
        return dataclasses.replace(self, **self._fitted({name: value})).is_valid()

    def edges(self) -> list[Self]:
        """Problems that ``check`` runs beside those that it makes: rare by chance, cheap to run."""
        return []

    def vast(self) -> list[Self]:
        """Problems that are too large to be run by ``check``, which asks whether they launch."""
        return []

    def shared_out(self) -> list[Self]:
        """Problems of few long items, each for several multiprocessors; only planned, as those."""
        return []

    def shared_by(self, sms: int, items: int = 1) -> Self | None:
        """The same kind of problem with few items, long enough for so many multiprocessors.

        None where the problem has no such.
        """
        return None

    def in_turn(self, rows: int) -> Self | None:
        """The same kind of problem with items of so many rows, each of several tiles, and odd.

        Whoever takes one after the other begins the second in the middle of what goes by turns.
        None where the problem has no such.
        """
        return None

    def crowded(self) -> Self | None:
        """The same kind of problem with a thousand rows and more, of few steps.

        None where the problem has no such.
        """
        return None

    def is_valid(self) -> bool:
        """Whether the sizes make sense."""
        try:
            self.validate()
        except PlanError:
            return False
        return True

    def varied(
        self, rng: random.Random, tries: Mapping[str, Sequence[Any]], most: int = MOST_STEPS
    ) -> Self | None:
        """The same kind of problem with other values of its axes and flags, small enough to run.

        Args:
            rng: Where the values come from.
            tries: Values by field, as ``tries`` gives them.
            most: Steps of tiles that it may take.

        Returns:
            The problem; None where chance finds none that is valid and small.
        """
        for _ in range(MOST_DRAWS):
            drawn = {name: rng.choice(values) for name, values in tries.items()}
            try:
                made = dataclasses.replace(self, **self._fitted(drawn))
                flops = MOST_FLOPS * max(most / MOST_STEPS, 1)
                if made.steps() > most or made._algorithmic_flops_bytes().flops > flops:
                    continue
                made.validate()
                return made
            except PlanError:
                continue
        return None

    def near(self, rng: random.Random, *, within: bool = False) -> Self:
        """The same kind of problem with extents near its own, of about as many steps.

        Values that are tried are few, and what is right for all of these may be wrong for others.
        Extents that are equal stay so.

        Args:
            rng: Where the extents come from.
            within: Whether none gets past a power of two.
        """
        steps = {
            f.name: f.metadata["near"] for f in dataclasses.fields(self)
            if "near" in f.metadata and type(getattr(self, f.name)) is int
        }  # fmt: skip
        for _ in range(NEAR_DRAWS):
            moved: dict[int, int] = {}
            for value in sorted({getattr(self, name) for name in steps}):
                step = max(steps[name] for name in steps if getattr(self, name) == value)
                moved[value] = _moved(value, step, rng, within)
            values = self.problem() | {name: moved[getattr(self, name)] for name in steps}
            try:
                made = dataclasses.replace(self, **self._fitted(values))
                made.validate()
                if made.steps() <= self.steps() + self.steps() // NEAR_STEPS:
                    return made
            except PlanError:
                continue
        return self

    def steps(self) -> int:
        """About how many steps of tiles a kernel takes for it, all blocks together."""
        return int(self._algorithmic_flops_bytes().flops) // USUAL_TILE**3

    def _fitted(self, values: dict[str, Any]) -> dict[str, Any]:
        """Drawn values with those that others bound cut to what these allow."""
        return values

    def _tries(self, field: dataclasses.Field[Any]) -> Sequence[Any]:
        """Values that are tried of a field; none where it keeps its own."""
        if field.name == "machine":
            return ()
        if "tries" in field.metadata:
            return tuple(field.metadata["tries"])
        if field.name == "dtype":
            return tuple(self.dtypes)
        if isinstance(field.default, bool):
            return (False, True)
        pieces = field.default is None and not field.metadata.get("hidden")
        return PIECES if pieces else ()

    def extreme(self) -> str:
        """What is extreme about the inputs, for the line that says what was tried."""
        return ""

    def validate(self) -> None:
        """Raise PlanError unless the sizes make sense; subclasses add their own arithmetic."""
        check_minima(self, PlanError)
        if self.dtype not in self.dtypes:
            raise PlanError(
                f"dtype={self.dtype!r} is not one of {', '.join(self.dtypes)} "
                f"(or, as torch names them, {', '.join(self.dtypes.values())})"
            )

    def resolve(self, machine: Machine) -> Self:
        """Fill in what was left open (None) for a device; grids are then sized for it."""
        return dataclasses.replace(self, machine=machine)

    def tolerance(self, output: str) -> Tolerance:
        """How far the output of that name may be from its reference."""
        return Tolerance(RELATIVE[self.dtype], RELATIVE[self.dtype] * ROW_FACTOR)

    @property
    def torch_dtype(self) -> torch.dtype:
        """The torch dtype of inputs and outputs."""
        import torch

        return getattr(torch, self.dtypes[self.dtype])

    @property
    def element_bytes(self) -> int:
        """Bytes per element (w in the cost models)."""
        return self.torch_dtype.itemsize

    def random(
        self, device: str | torch.device, *shapes: tuple[int, ...]
    ) -> tuple[torch.Tensor, ...]:
        """Normal random tensors in the problem's dtype, the same for every run.

        In place of fp8, which torch computes nothing in, they are in fp16; see ``rounded``.
        """
        import torch

        dtype = self.torch_dtype if self.element_bytes > 1 else torch.float16
        if torch.device(device).type == "meta":
            return tuple(torch.empty(x, dtype=dtype, device="meta") for x in shapes)
        generator = torch.Generator(device=device).manual_seed(SEED)
        return tuple(
            torch.randn(x, dtype=torch.float32, device=device, generator=generator).to(dtype)
            for x in shapes
        )

    @staticmethod
    def scaled(tensor: torch.Tensor, factor: float) -> torch.Tensor:
        """A tensor times a factor; on ``"meta"``, where no value is, the tensor itself."""
        # torch works out what a product on meta looks like in Python: importing that takes seconds.
        return tensor if tensor.is_meta else tensor * factor

    def rounded(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Tensors in the problem's dtype."""
        return tuple(x.to(self.torch_dtype) for x in tensors)

    def empty(self, *shape: int, device: torch.device | str, fp32: bool = False) -> torch.Tensor:
        """An uninitialized tensor in the problem's dtype, or in fp32."""
        import torch

        dtype = torch.float32 if fp32 else self.torch_dtype
        return torch.empty(shape, dtype=dtype, device=device)

    def problem(self) -> dict[str, Scalar]:
        """The fields that define the problem, in declaration order."""
        return {f.name: getattr(self, f.name) for f in self.option_fields()}

    @classmethod
    def option_fields(cls) -> list[dataclasses.Field[Any]]:
        """The fields that become flags (all but the hidden ones)."""
        return [f for f in dataclasses.fields(cls) if not f.metadata.get("hidden")]

    @classmethod
    def benchmark_kernel_argparse(cls) -> dict[str, Any]:
        """Types of all flags by field name, the single source of the command line."""
        hints = get_type_hints(cls)
        return {f.name: hints[f.name] for f in cls.option_fields()}

    def slug(self) -> str:
        """File-name form of the problem, for example ``b64-h128-s1-t4096-k512-p64-bf16``."""
        values = {k: v for k, v in self.problem().items() if v is not None and v is not False}
        sizes = [f"{k}{v}" for k, v in values.items() if type(v) is int]
        words = [v for v in values.values() if isinstance(v, str)]
        flags = [k for k, v in values.items() if v is True]
        return "-".join(sizes + words + flags)


def _moved(value: int, step: int, rng: random.Random, within: bool) -> int:
    """A number near another, whole steps away from it, perhaps between the same powers of two."""
    if value <= 1:
        return value
    low, high = value - value // NEAR, value + value // NEAR
    if within:
        bits = (value - 1).bit_length()
        low, high = max(low, (1 << bits >> 1) + 1), min(high, 1 << bits)
    return value + step * rng.randint(-((value - low) // step), (high - value) // step)


@dataclass(frozen=True)
class Regime:
    """A kind of problem of a workload, for which other kernels win.

    Attributes:
        name: Such as ``decode``.
        meaning: Which problems it holds.
        holds: Whether a problem's axes are of it.
    """

    name: str
    meaning: str
    holds: Callable[[Mapping[str, Any]], bool]


@dataclass(frozen=True)
class AxisMetric:
    """A figure of a problem that a trigger, an evidence entry or a page may name.

    Attributes:
        name: Unique over all workloads that mean the same by it; snake case.
        description: One sentence.
        source: Where in a record it comes from.
        read: Reads it from a problem's axes; None where they do not state it.
        type: Type of its values.
    """

    name: str
    description: str
    source: str
    read: Callable[[Mapping[str, Any]], Any]
    type: Literal["number", "text", "flag"] = "number"


def axis_metric(
    name: str, axis: str, description: str, type: Literal["number", "text", "flag"] = "number"
) -> AxisMetric:
    """The metric that is one axis of the problem."""
    return AxisMetric(name, description, f"problem.{axis}", lambda p: p.get(axis), type)


def _keys_per_query(problem: Mapping[str, Any]) -> float | None:
    keys, queries = problem.get("t"), problem.get("s")
    return keys / queries if keys and queries else None


#: Of every kind of attention.
KEYS_PER_QUERY = AxisMetric(
    "keys_per_query",
    "Keys of a sequence over its query tokens: how long the walk of a row tile is.",
    "problem.t / problem.s",
    _keys_per_query,
)


@dataclass(frozen=True)
class Workload:
    """One workload: what its designs compute, and the words for it.

    Attributes:
        key: Its layer, such as ``mla``: the folder below ``kernels/<language>/``.
        title: Its name in prose.
        summary: One sentence on what is computed.
        problem: The axes that all of its designs share; ``bench`` takes them as flags.
        sweep: The axis over which tables and charts run.
        compared: Axes that must be equal where designs are compared.
        regimes: Its regimes, in order; a problem is of the first that holds.
        metrics: Figures of its problems.
        lighter: Whether an axis of a problem's own spares it work that others of the same shared
            axes have, so that its bound is not theirs.
        peers: Names of libraries' kernels by their design, the first one what all compare with.
        least_us: Least microseconds that any form of a problem takes at a device's bound rates,
            also those whose inputs are kept in another form; None where it is not known.
        repeats: Axes of a problem along which a kernel does the same again, so that a shorter one
            tells of all; for each whether tiles cut it.
        tile_intensity: FLOPs per byte that a block loads where it loads each operand once: of a
            problem, the rows and the columns of a tile; None where they do not tell.
        tiles: Tiles that the result of a problem has, of so many rows and columns; None where they
            do not tell.
        outputs: Elements of a problem's result; None where its axes do not tell.
        scores: Products of a query and a key that a problem asks for; None where its axes do not
            tell, or it has none.
        sharing: Rows of a problem that take the same operands; None where its axes do not tell.
        sets: Sets of problems that ``bench`` runs in one process, by name: the fields of each.
    """

    key: str
    title: str
    summary: str
    problem: type[Problem]
    sweep: str
    compared: tuple[str, ...]
    regimes: tuple[Regime, ...] = ()
    metrics: tuple[AxisMetric, ...] = ()
    lighter: Callable[[Mapping[str, Any]], bool] = lambda _problem: False
    peers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    least_us: Callable[[Mapping[str, Any], Ceilings], float | None] = lambda _problem, _rates: None
    repeats: Callable[[Mapping[str, Any]], Mapping[str, bool]] = lambda _problem: {}
    tile_intensity: Callable[[Mapping[str, Any], int, int], float | None] = (
        lambda _problem, _rows, _columns: None
    )
    tiles: Callable[[Mapping[str, Any], int, int], int | None] = lambda _problem, _rows, _columns: (
        None
    )
    outputs: Callable[[Mapping[str, Any]], int | None] = lambda _problem: None
    scores: Callable[[Mapping[str, Any]], int | None] = lambda _problem: None
    sharing: Callable[[Mapping[str, Any]], int | None] = lambda _problem: None
    sets: Mapping[str, Callable[[], Sequence[Mapping[str, Any]]]] = dataclasses.field(
        default_factory=dict
    )

    @property
    def axes(self) -> dict[str, str]:
        """Meaning, with unit, of each axis that all designs share."""
        return {f.name: f.metadata["help"] for f in self.problem.option_fields()}

    def regime(self, problem: Mapping[str, Any]) -> str | None:
        """The regime that a problem is of; None where its axes do not tell."""
        try:
            return next((r.name for r in self.regimes if r.holds(problem)), None)
        except (KeyError, TypeError):
            return None
