"""Triton MLA: plan of split-KV decode, an attention kernel and one that merges its parts."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar
from unittest import mock

from mla_var3.errors import NotExecutableError
from mla_var3.runtime import RuntimeObject, Tiling
from mla_var3.runtime.library_kernel import LibraryKernel, LibraryPlan, Requirement
from mla_var3.workloads.mla import LatentProblem

if TYPE_CHECKING:
    import torch

NEEDS = Requirement("triton", "pip install triton")
#: Pieces are multiples of this many keys, and so of every tile of keys.
PIECE = 64
#: Rows of a tile: as many as one warpgroup's matrix instruction takes.
ROWS = 64


def interpreted() -> AbstractContextManager[Any]:
    """Triton's interpreter, which asks its variable as it is imported and as it runs."""
    return mock.patch.dict(os.environ, TRITON_INTERPRET="1")


def device_half(cpu: bool) -> ModuleType:
    """The kernels, for the GPU or for Triton's interpreter.

    Raises:
        NotExecutableError: Triton is absent, or this process imported it for the other one: it
            chooses as it is imported.
    """
    triton, found = NEEDS.load(), importlib.import_module(f"{__package__}.device")
    if isinstance(triton.language.zeros, triton.runtime.JITFunction) == cpu:
        raise NotExecutableError(
            "Triton was imported for the other device in this process; start another with "
            f"TRITON_INTERPRET={int(cpu)}"
        )
    return found


@dataclass(frozen=True, kw_only=True)
class Plan(LatentProblem, LibraryPlan):
    """Problem and launches of the base version."""

    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {"attention": Tiling}
    needs = NEEDS

    @property
    def rows(self) -> int:
        """Rows of a tile, 16 at least, which a matrix instruction takes."""
        return ROWS if self.h * self.s > 16 else 16

    @property
    def row_tiles(self) -> int:
        """Tiles of query rows of a sequence."""
        return -(-self.h * self.s // self.rows)

    @property
    def piece(self) -> int:
        """Keys of a piece, so that tiles of rows and pieces fill the SMs once."""
        tiles = -(-self.t // PIECE)
        pieces = min(max(self.target.sm_count // (self.b * self.row_tiles), 1), tiles)
        return -(-tiles // pieces) * PIECE

    @property
    def pieces(self) -> int:
        """Pieces of the keys; each has at least one."""
        return -(-self.t // self.piece)

    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        o, lse = self.empty_outputs(inputs[0].device)
        parts, part_lse = self._partial(o, lse)

        def call() -> None:
            cpu = o.device.type == "cpu"
            device, rows = device_half(cpu), self.h * self.s
            # The tuner chooses the tile of keys, and has no clock on a CPU.
            attend, keys = (device.attend, {"KEYS": PIECE // 2}) if cpu else (device.tuned, {})
            grid = self.row_tiles, self.pieces, self.b
            attend[grid](
                *inputs, parts, part_lse, self.scale, rows, self.s, self.t, self.piece,
                K=self.k, P=self.p, CAUSAL=self.causal, ROWS=self.rows, WIDE=cpu, **keys,
            )  # fmt: skip
            if self.pieces > 1:
                device.merge[rows, self.b](
                    parts, part_lse, o, lse, rows, K=self.k, SPLITS=self.pieces
                )

        return LibraryKernel(
            call,
            "triton_mla",
            input_tensors=dict(zip(("q", "qpe", "z", "kpe"), inputs, strict=True)),
            output_tensors={"o": o, "lse": lse},
            cost=self._algorithmic_flops_bytes(),
            on_cpu=interpreted,
            _name="attention",
        )

    def _partial(self, o: torch.Tensor, lse: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The pieces' outputs in fp32, ``[b, pieces, h, s, k]``, and LSEs; of one, the outputs."""
        if self.pieces == 1:
            return o, lse
        rows = (self.b, self.pieces, self.h, self.s)
        return (
            self.empty(*rows, self.k, device=o.device, fp32=True),
            self.empty(*rows, device=o.device, fp32=True),
        )
