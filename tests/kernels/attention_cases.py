"""Problems and counts that the tests of several attention designs share."""

from __future__ import annotations

import math
from typing import Any

import torch
from hypothesis import strategies as st

from mla_var3 import interpreter
from mla_var3.devices import Machine
from mla_var3.runtime import KernelPlan, registry
from mla_var3.runtime.check import check_plan
from mla_var3.runtime.ct_kernel import CtKernel

#: s and a t for each head count: ragged against tiles of 64 and 128, some of them shorter than s.
SIZES = {1: (70, 129), 2: (129, 65), 5: (64, 67), 16: (150, 100), 130: (135, 131)}


def grid() -> list[dict[str, Any]]:
    """Every s with both masks and dtypes at 16 heads, with one of each at 128: those take longest.

    All four pairs of a mask and a dtype occur.
    """
    return [
        {
            "b": 2 if (s, h) == (1, 16) else 1,
            "h": h,
            "s": s,
            "t": t,
            "causal": causal,
            "dtype": dtype,
        }
        for place, (s, ts) in enumerate(SIZES.items())
        for h, t in zip((16, 128), ts, strict=True)
        for causal, dtype in _masks_and_dtypes(place)[: 2 if h == 16 else 1]
    ]


def _masks_and_dtypes(place: int) -> list[tuple[bool, str]]:
    pairs = [(True, "bf16"), (False, "fp16"), (True, "fp16"), (False, "bf16")]
    return pairs[place % 4 :] + pairs[: place % 4]


def name(case: dict[str, Any]) -> str:
    """Test id of a case."""
    return "-".join(f"{k}{v}" if isinstance(v, int) else str(v) for k, v in case.items())


#: Small problems of any shape; extents that are no multiple of anything.
PROBLEMS = st.fixed_dictionaries(
    {
        "b": st.integers(1, 3),
        "h": st.sampled_from([1, 3, 16]),
        "s": st.integers(1, 40),
        "t": st.integers(1, 200),
        "causal": st.booleans(),
        "dtype": st.sampled_from(["bf16", "fp16"]),
    }
)


def versions(design: str) -> list[str]:
    """The versions of a design that there are."""
    return [found.version for found in registry.designs()[design]]


def machine(sm_count: int = 132, tflops: float = 694.0, gbps: float = 4270.0) -> Machine:
    """A device to size grids and open sizes for."""
    return Machine("a-device", tflops, gbps, sm_count)


def make(design: str, version: str, **fields: Any) -> KernelPlan:
    """The plan of a version."""
    return registry.find(design, version).plan_class()(**fields)


def assert_merged(plan: Any, options: Any) -> None:
    """Right values and no diagnostic in the emulator, and no signal left where parts merge."""
    from mla_var3.languages.cute import emulation

    inputs = plan.prepare_inputs()
    ((_, kernel),) = plan.plan(*inputs).stages()
    o, lse = outputs = tuple(kernel.output_tensors.values())
    o.fill_(math.nan)
    _, run = emulation.emulate("attention", *kernel.host(), outputs, options)
    assert not run.diagnostics
    assert not kernel.input_tensors["signals"].any()
    expected = plan.reference_fn(*inputs)
    assert (o - expected["o"]).norm() < 4e-3 * expected["o"].norm()
    assert torch.allclose(lse, expected["lse"], atol=1e-3)


def assert_correct(plan: KernelPlan) -> None:
    """Right values, and not one diagnostic."""
    result = check_plan(plan)
    assert result.ok, result.explain()
    assert result.diagnostics == []


def outputs(plan: KernelPlan) -> dict[str, torch.Tensor]:
    """Outputs of one run in the interpreter."""
    return plan.plan(*plan.prepare_inputs("cpu"))()


def counted(plan: KernelPlan) -> list[tuple[CtKernel, interpreter.LaunchReport]]:
    """Each stage with what the interpreter counted."""
    obj = plan.plan(*plan.prepare_inputs("cpu"))
    with interpreter.recording() as reports:
        obj()
    return [(kernel, report) for (_, kernel), report in zip(obj.stages(), reports, strict=True)]


def unique_bytes(report: interpreter.LaunchReport) -> int:
    """Bytes of the distinct elements that a launch read or wrote."""
    return report.unique_bytes_loaded + report.unique_bytes_stored


def tiles_seen(s: int, t: int, rows: range, queries_of_rows: int, tile_n: int) -> int:
    """Key tiles of which some row sees some key, counted one by one (bottom-right causal).

    Args:
        s: Query tokens.
        t: Keys.
        rows: Rows of a tile.
        queries_of_rows: Row r is query ``r % queries_of_rows``.
        tile_n: Keys a tile.
    """
    last = max(r % queries_of_rows for r in rows) + t - s
    return sum(1 for j in range(math.ceil(t / tile_n)) if j * tile_n <= last)
