"""Reads MLA's serving problems from ``conf/serving*.toml`` and draws their sequence lengths."""

from __future__ import annotations

import functools
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mla_var3 import inputs

#: How the lengths of a batch relate.
LENGTHS = ("equal", "ragged", "one")
#: How much longer one sequence is than each of the others.
LONGER = 10
SET = Path(__file__).parents[2] / "conf" / "serving.toml"
#: As many more, drawn by chance; and again, each time after a version was chosen on those before.
FRESH, UNSEEN, LATER, THIRD = (
    SET.with_name(f"serving-{name}.toml") for name in ("fresh", "unseen", "later", "third")
)


def drawn_lengths(b: int, t: int, kind: str, seed: int = 0) -> list[int]:
    """Keys of each sequence of a batch, b*t in all or about that.

    Args:
        b: Sequences.
        t: Mean length.
        kind: ``equal``; ``ragged``, drawn evenly from t/2 to 3t/2; ``one``, ten times the rest.
        seed: Of what is drawn.
    """
    if kind == "ragged":
        draw = random.Random(f"{b} {t} {seed}")
        return [draw.randint(max(t // 2, 1), t * 3 // 2) for _ in range(b)]
    if kind == "one" and b > 1:
        rest = max(b * t // (b - 1 + LONGER), 1)
        return [LONGER * rest, *[rest] * (b - 1)]
    return [t] * b


@dataclass(frozen=True)
class ServingProblem:
    """One problem of the set."""

    b: int
    s: int
    h: int
    t: int
    lengths: str
    page: int

    @property
    def name(self) -> str:
        """What tells it from others."""
        return f"b={self.b} s={self.s} h={self.h} t={self.t} {self.lengths}"

    def drawn(self) -> list[int]:
        """Keys of each sequence."""
        return drawn_lengths(self.b, self.t, self.lengths)

    def fields(self) -> dict[str, Any]:
        """The problem as fields of a plan; of several queries each sees what comes before it."""
        lengths = None if self.lengths == "equal" else self.lengths
        sizes = {"b": self.b, "s": self.s, "h": self.h, "t": self.t, "page": self.page}
        return {**sizes, "lengths": lengths, "causal": self.s > 1}


@functools.cache
def serving_set(path: Path = SET) -> tuple[ServingProblem, ...]:
    """The problems of a file."""
    content = inputs.read_toml(path)
    return tuple(
        ServingProblem(row["b"], row["s"], row["h"], row["t"], kind, content["page"])
        for row in content["problems"]
        for kind in row["lengths"]
    )
