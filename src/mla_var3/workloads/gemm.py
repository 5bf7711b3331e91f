"""Workload ``gemm``: inputs, reference and cost of C = A @ B^T, both operands K-major."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from mla_var3.errors import PlanError
from mla_var3.workloads.base import (
    USUAL_TILE,
    Cost,
    Problem,
    Regime,
    Workload,
    axis_metric,
    option,
)

if TYPE_CHECKING:
    import torch

#: Largest extent: element offsets of a square matrix of it still fit 64 bits by far.
MAX_EXTENT = 1 << 20
#: Rows or columns below which a tile of the tensor core is not filled and bytes weigh most.
THIN_BELOW = 128


#: Tiles of 64 cubed that take as long as one step of attention, with its latent dimension of 512.
STEPS_OF_A_STEP = 4
#: Factors by which sums leave the range of fp16, and by which they come near its end.
LARGE, LARGEST = 2.0**20, {"bf16": 2.0**20, "fp16": 2.0**13}
#: A sum that fp16 does not hold, how much smaller what is left is, and the one operand's part.
BETWEEN, LEFT, PART = 2.0**17, 2.0**-6, 4.0
#: Usual tiles along rows and columns that are many in all, also where tiles are twice as large.
MANY_ROWS, MANY_COLUMNS = 18, 254
#: The same, of 41 tiles of 256 columns or 82 of 128: 41 times its reciprocal in fp32 is below 1.
FP32_ROWS, FP32_COLUMNS = 36, 164
#: Extents of problems made for ``check``: one tile and several, whole and ragged.
EXTENTS = (1, 7, 64, 130, 256, 264, 385, 520, 700, 1500)


@dataclass(frozen=True, kw_only=True)
class GemmProblem(Problem):
    """One matrix product.

    Inputs: a ``[m,k]``, b ``[n,k]``. Output: c ``[m,n]`` in the problem's dtype, summed in fp32.
    """

    covers: ClassVar[str] = "one matrix product, operands and result in DRAM"

    m: int = option(8192, "rows of A and C", tries=EXTENTS, near=1, minimum=1)
    n: int = option(8192, "rows of B, columns of C", tries=EXTENTS, near=1, minimum=1)
    k: int = option(
        8192,
        "columns of A and B: the sum's length",
        tries=(8, 40, 64, 72, 264, 520, 2200),
        near=8,
        minimum=1,
    )
    #: Factor on the last row of A, no larger than its type holds: a row of C that is far larger
    #: than the others. Where it is not 1, sums of the first of several rows are large in between.
    spread: float = dataclasses.field(
        default=1.0, metadata={"hidden": True, "tries": (1.0, 1.0, LARGE)}
    )

    #: What is added first to all sums of the first row and taken away last: they are so large in
    #: between that fp32 alone keeps what is left.
    between: float = dataclasses.field(default=0.0, metadata={"hidden": True})

    def validate(self) -> None:
        super().validate()
        for name in ("m", "n", "k"):
            if getattr(self, name) > MAX_EXTENT:
                raise PlanError(f"{name}={getattr(self, name)} exceeds {MAX_EXTENT}")
        if self.k % 8:
            raise PlanError(f"k={self.k} is not a multiple of 8: rows must start on 16 bytes")

    def steps(self) -> int:
        tiles = [-(-extent // USUAL_TILE) for extent in (self.m, self.n, self.k)]
        return -(-math.prod(tiles) // STEPS_OF_A_STEP)

    def prepare_inputs(self, device: str | torch.device = "cpu") -> tuple[torch.Tensor, ...]:
        a, b = self.random(device, (self.m, self.k), (self.n, self.k))
        b = self.scaled(b, self.k**-0.5)  # Sums stay near 1 whatever k.
        if not a.is_meta:
            if self.spread != 1.0:
                a[-1] *= self._factor
            between = self.between or BETWEEN * (self.spread != 1.0 and self.m > 1)
            if between:
                a[:, 0] = a[:, -1] = 0.0
                b[:, 0] = b[:, -1] = PART
                a[0] *= between * LEFT
                a[0, 0], a[0, -1] = between / PART, -between / PART
        return a, b

    def reference_fn(self, *inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        a, b = (x.float() for x in inputs)
        return {"c": a @ b.T}

    @property
    def _factor(self) -> float:
        """``spread``, as far as the type of the operands and of the result holds it."""
        return min(self.spread, LARGEST[self.dtype])

    def extreme(self) -> str:
        return f"a row {self._factor:g} times as large" if self.spread != 1.0 else ""

    def empty_output(self, device: torch.device) -> torch.Tensor:
        """Uninitialized c."""
        return self.empty(self.m, self.n, device=device)

    def _algorithmic_flops_bytes(self, tiling: Any = None) -> Cost:
        m, n, k = self.m, self.n, self.k
        return Cost(2 * m * n * k, self.element_bytes * (m * k + n * k + m * n))

    def check_plans(self) -> list[Self]:
        """Whole tiles and ragged ones in each extent, one row, one column, a long sum."""
        rows = [
            # m, n, k, dtype
            (128, 128, 64, "bf16"),
            (200, 136, 72, "bf16"),
            (1, 256, 128, "fp16"),
            (130, 1, 264, "bf16"),
            (64, 72, 2048, "fp16"),
            (513, 385, 40, "bf16"),
            (7, 5, 8, "fp16"),
        ]
        return [dataclasses.replace(self, m=m, n=n, k=k, dtype=dtype) for m, n, k, dtype in rows]

    def edges(self) -> list[Self]:
        """Many tiles of rows, or of columns, beside few: of groups of tiles the last is small.

        And so many tiles in all that a product with 1 / n in 16 bits gets some of their places
        wrong, or one in fp32. And a long sum that is larger than 16 bits hold before it ends.
        """
        few, many = 4 * USUAL_TILE + 8, 34 * USUAL_TILE + 24
        long = dataclasses.replace(self, m=USUAL_TILE, n=USUAL_TILE, k=2200, between=BETWEEN)
        tiles = ((MANY_ROWS, MANY_COLUMNS), (FP32_ROWS, FP32_COLUMNS))
        flat = ((many, few), (few, many), *((m * USUAL_TILE, n * USUAL_TILE) for m, n in tiles))
        return [*(dataclasses.replace(self, m=m, n=n, k=8) for m, n in flat), long]

    def vast(self) -> list[Self]:
        """As many rows as there may be, and as many columns."""
        return [
            dataclasses.replace(self, m=m, n=n, k=USUAL_TILE)
            for m, n in ((MAX_EXTENT, USUAL_TILE), (USUAL_TILE, MAX_EXTENT))
        ]

    def shrunk(self) -> Self:
        """At most some 300 by 300 by 200, ragged."""
        return dataclasses.replace(self, m=min(self.m, 296), n=min(self.n, 328), k=min(self.k, 200))


def _least(problem: Mapping[str, Any]) -> int:
    return min(problem["m"], problem["n"])


#: Bytes of an element of 16 bits.
_WIDTH = 2


def _tile_intensity(problem: Mapping[str, Any], rows: int, columns: int) -> float:
    return 2 * rows * columns / (_WIDTH * (rows + columns))


WORKLOAD = Workload(
    key="gemm",
    title="GEMM",
    summary="The product of two matrices, summed in fp32.",
    problem=GemmProblem,
    sweep="m",
    outputs=lambda p: p["m"] * p["n"],
    tile_intensity=_tile_intensity,
    tiles=lambda p, rows, columns: -(-p["m"] // rows) * -(-p["n"] // columns),
    repeats=lambda _problem: dict.fromkeys(("m", "n", "k"), True),
    compared=("m", "n", "k", "dtype"),
    regimes=(
        Regime(
            "thin", "fewer than 128 rows or columns", lambda p: min(p["m"], p["n"]) < THIN_BELOW
        ),
        Regime(
            "wide", "128 rows and columns, and more", lambda p: min(p["m"], p["n"]) >= THIN_BELOW
        ),
    ),
    metrics=(
        axis_metric("gemm_m", "m", "Rows of A and C."),
        axis_metric("gemm_n", "n", "Rows of B, columns of C."),
        axis_metric("gemm_k", "k", "Length of the sum."),
    ),
)
