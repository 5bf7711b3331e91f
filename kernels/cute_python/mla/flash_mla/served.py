"""Host functions and compiled libraries of the decode kernels that ``mla_var3.serving`` launches.

Nothing but a kind and the widths of rows is compiled in; everything else is given at launch.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from mla_var3.errors import ToolchainError
from mla_var3.kernel.cute_python.kit.even import Even
from mla_var3.kernel.cute_python.kit.list_window import ListWindowKernel, Model1Kernel
from mla_var3.kernel.cute_python.kit.paged_plan import arguments
from mla_var3.kernel.cute_python.kit.prefill import PrefillKernel
from mla_var3.kernel.cute_python.kit.prefill_parts import PartsKernel
from mla_var3.kernel.cute_python.mla.flash_mla.flash_mla_v25.flash_mla_v25 import (
    Kernel,
    Odd,
    Plan,
    Thin,
)
from mla_var3.languages.cute import emulation, signature
from mla_var3.languages.cute.configuration import Configuration
from mla_var3.languages.cute.export import export
from mla_var3.languages.cute.signature import parameter_names
from mla_var3.runtime.cute_kernel import Dynamic
from mla_var3.serving.kinds import COLUMNS, MODEL1_ROW, PLACE, SIGNALS, SPARSE_ROW, Kind

#: As ``paged_plan.GIVEN``: what kernels of lists take beside it.
GIVEN = {
    "other": ((0, 1), 16),
    "other_indices": ((0, 1), 0),
    "firsts": ((0,), 0),
    "sink": ((0,), 0),
    "sums": ((0, 1), 0),
    "tops": ((0, 1), 0),
}

#: Costs of parts of lists, whose merge is that of ``sparse_mla``.
LISTS = Even(2, least=4, join=6, each=2)


def given(made: Any, values: Sequence[Any]) -> tuple[Any, ...]:
    """Values as the arguments that a host function is compiled for."""
    found = arguments(made, values)
    return tuple(
        Dynamic(value, GIVEN[name][0], any_strides=GIVEN[name][1]) if name in GIVEN else value
        for name, value in zip(parameter_names(made), found, strict=True)
    )


def host(kind: Kind) -> Any:
    """The host function of a kind."""
    match kind.name:
        case "schedule":
            return LISTS if kind.form else Plan.schedule
        case "lists":
            return listed(kind)
        case "prefill":
            rows, _, cut = kind.form.partition("-")
            kernel = PartsKernel if cut else PrefillKernel
            return kernel(kind.lazy, rows == "rows576")
    if kind.columns:
        return Thin(kind.columns, kind.box)
    if kind.single:
        return Odd(kind.lazy, kind.box, kind.single)
    return Kernel(kind.lazy, kind.share, kind.box)


def listed(kind: Kind) -> Any:
    """The host function of lists in a form."""
    tokens, _, source = kind.form.partition("-")
    kernel = Model1Kernel if tokens == "584" else ListWindowKernel
    return kernel(kind.lazy, source == "second", source == "table")


def emulate(kind: Kind, values: Sequence[Any], written: Sequence[torch.Tensor]) -> None:
    """Run a kind on CPU tensors.

    Raises:
        ToolchainError: It does not compile, a race or an access out of bounds was found, or its
            library is compiled for other arguments than these.
    """
    made = host(kind)
    asked = given(made, values)
    known = signature.specs(made, given(made, examples(kind)))
    for mine, compiled_for in zip(signature.specs(made, asked), known, strict=True):
        if mine != compiled_for:
            raise ToolchainError(f"{kind.key} is compiled for {compiled_for}, and is given {mine}")
    found = emulation.execute(kind.key, made, asked, tuple(written))
    if found.diagnostics:
        raise ToolchainError(f"{kind.key}: {found.diagnostics[0].message}")


def compiled(kind: Kind, arch: str, folder: Path) -> None:
    """Write a kind as a library with its manifest into a folder."""
    made = host(kind)
    one = Configuration(kind.tiling(), made, given(made, examples(kind)))
    export(kind.key, [one], arch, folder, workers=1)


def examples(kind: Kind) -> tuple[Any, ...]:
    """Arguments of a kind without memory behind them, for a compiler to look at."""

    def made(dtype: torch.dtype, *shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device="meta")

    numbers = torch.int32, torch.float32
    lengths, cuts = made(numbers[0], 2), made(numbers[0], 2, COLUMNS)
    if kind.name == "schedule":
        return lengths, cuts
    o, lse = made(kind.torch_dtype, 2, 1, 64, 512), made(numbers[1], 2, 64, 1, 1)
    left = made(numbers[1], 4, PLACE), made(numbers[0], 4, SIGNALS)
    if kind.name == "prefill":
        q, sums = made(kind.torch_dtype, 2, 1, 64, 576), made(numbers[1], 2, 64)
        cache = made(torch.uint8, 1, 64, 1152 if kind.form.startswith("rows576") else 1024)
        where = cache, made(numbers[0], 2, 64), lengths, made(numbers[1], 64)
        left = left if kind.form.endswith("parts") else ()
        return q[..., :512], q[..., 512:], *where, *left, o, sums, sums, 1, 0, 0, 1.0
    if kind.name == "lists":
        q = made(kind.torch_dtype, 2, 1, 64, 576)
        tokens = kind.form.partition("-")[0]
        width = {"656": SPARSE_ROW, "584": MODEL1_ROW}[tokens]
        cache, lists = made(torch.uint8, 4, 64, width), made(numbers[0], 2, 64)
        where = cache, cache, lists, lists, lengths, lengths, cuts
        return q[..., :512], q[..., 512:], *where, *left, o, lse, 1.0, 1.0, 0.0
    q, cache = made(kind.torch_dtype, 2, 1, 64, 576), made(kind.torch_dtype, 4, 64, 576)
    queries, keys = (q[..., :512], q[..., 512:]), (cache[..., :512], cache[..., 512:])
    where = made(numbers[0], 2, 2), lengths, cuts
    return *queries, *keys, *where, *left, o, lse, 0, 1.0, 1.0, 0.0
