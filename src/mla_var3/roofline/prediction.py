"""Lower bounds on run time from FLOPs, bytes and two ceilings.

The roofline model (Williams, Waterman, Patterson, CACM 52(4), 2009): a kernel that overlaps its
arithmetic with its memory traffic perfectly takes the longer of the two.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from mla_var3.errors import PlanError
from mla_var3.roofline.ceilings import Ceilings

Bound = Literal["compute", "memory"]
Arrangement = Literal["stage", "pipeline", "concurrent"]


@dataclass(frozen=True)
class Prediction:
    """A floor on the run time of a stage or of an arrangement of stages.

    Attributes:
        time_us: The floor, in microseconds.
        bound: The ceiling that sets it.
        intensity: FLOP a byte; infinite when no bytes move, 0 when nothing is computed.
        ridge: The intensity at which the ceilings bind equally.
        flops: FLOPs of all stages.
        bytes: DRAM bytes of all stages.
        compute_us: Time at the arithmetic ceiling alone.
        memory_us: Time at the DRAM ceiling alone.
        arrangement: How the parts run; ``stage`` has none.
        parts: The predictions this one was composed from.
        explanation: One sentence that shows the arithmetic.
    """

    time_us: float
    bound: Bound
    intensity: float
    ridge: float
    flops: float
    bytes: float
    compute_us: float
    memory_us: float
    arrangement: Arrangement = "stage"
    parts: tuple[Prediction, ...] = ()
    explanation: str = ""


def predict(flops: float, bytes: float, ceilings: Ceilings) -> Prediction:
    """Predict one stage.

    Args:
        flops: Floating-point operations (a multiply-add counts as two).
        bytes: Bytes read from and written to DRAM.
        ceilings: The device's ceilings for the element type.

    Returns:
        max(flops / throughput, bytes / bandwidth) and what leads to it.

    Raises:
        PlanError: A count is negative or not finite.
    """
    for name, count in (("FLOPs", flops), ("bytes", bytes)):
        if not 0 <= count < math.inf:
            raise PlanError(f"cannot predict a stage with {count} {name}: a count is 0 or more")
    compute_us = flops / (ceilings.tflops * 1e6)
    memory_us = bytes / (ceilings.gbps * 1e3)
    return Prediction(
        time_us=max(compute_us, memory_us),
        bound=_bound(compute_us, memory_us),
        intensity=_intensity(flops, bytes),
        ridge=ceilings.ridge,
        flops=flops,
        bytes=bytes,
        compute_us=compute_us,
        memory_us=memory_us,
        explanation=(
            f"max({flops / 1e9:.4g} GFLOP / {ceilings.tflops:g} TFLOP/s = {compute_us:.4g} us, "
            f"{bytes / 1e6:.4g} MB / {ceilings.gbps:g} GB/s = {memory_us:.4g} us)"
        ),
    )


def predict_pipeline(parts: Sequence[Prediction]) -> Prediction:
    """Predict stages that run one after another: their times add up.

    The bound is that of the ceiling which sets the larger share of the summed time.

    Raises:
        PlanError: There are no parts.
    """
    _require_parts(parts, "pipeline")
    time_us = sum(part.time_us for part in parts)
    by_compute = sum(part.time_us for part in parts if part.bound == "compute")
    terms = " + ".join(f"{part.time_us:.4g}" for part in parts)
    return _compose(
        parts,
        "pipeline",
        time_us,
        _bound(by_compute, time_us - by_compute),
        f"{terms} = {time_us:.4g} us, one after another",
    )


def predict_concurrent(parts: Sequence[Prediction]) -> Prediction:
    """Predict stages that run at the same time on one device.

    They share both ceilings, so running together cannot beat the summed arithmetic at the
    arithmetic ceiling, nor the summed traffic at the DRAM ceiling, nor the slowest part. What
    concurrency can win is the overlap of one part's arithmetic with another's traffic.

    Raises:
        PlanError: There are no parts.
    """
    _require_parts(parts, "concurrent group")
    compute_us = sum(part.compute_us for part in parts)
    memory_us = sum(part.memory_us for part in parts)
    slowest = max(parts, key=lambda part: part.time_us)
    time_us = max(compute_us, memory_us, slowest.time_us)
    # A part that is itself a pipeline can take longer than either sum: it then sets the bound.
    shared = time_us > slowest.time_us
    serial = sum(part.time_us for part in parts)
    return _compose(
        parts,
        "concurrent",
        time_us,
        _bound(compute_us, memory_us) if shared else slowest.bound,
        f"max({compute_us:.4g} us of arithmetic, {memory_us:.4g} us of DRAM traffic, "
        f"{slowest.time_us:.4g} us slowest part) = {time_us:.4g} us: the parts share both "
        f"ceilings; one after another they take {serial:.4g} us",
    )


def _compose(
    parts: Sequence[Prediction],
    arrangement: Arrangement,
    time_us: float,
    bound: Bound,
    explanation: str,
) -> Prediction:
    flops = sum(part.flops for part in parts)
    bytes_ = sum(part.bytes for part in parts)
    compute_us = sum(part.compute_us for part in parts)
    memory_us = sum(part.memory_us for part in parts)
    return Prediction(
        time_us=time_us,
        bound=bound,
        intensity=_intensity(flops, bytes_),
        # Stages may differ in element type; the arithmetic ceiling over all of them is the
        # FLOPs divided by the time they need at their own ceilings.
        ridge=_common_ridge(parts, flops, bytes_, compute_us, memory_us),
        flops=flops,
        bytes=bytes_,
        compute_us=compute_us,
        memory_us=memory_us,
        arrangement=arrangement,
        parts=tuple(parts),
        explanation=explanation,
    )


def _common_ridge(
    parts: Sequence[Prediction], flops: float, bytes_: float, compute_us: float, memory_us: float
) -> float:
    ridges = {part.ridge for part in parts}
    if len(ridges) == 1:
        return ridges.pop()
    if compute_us == 0 or bytes_ == 0:
        return max(ridges)
    return (flops / compute_us) / (bytes_ / memory_us)


def _require_parts(parts: Sequence[Prediction], what: str) -> None:
    if not parts:
        raise PlanError(f"a {what} without stages has no time to predict")


def _bound(compute_us: float, memory_us: float) -> Bound:
    return "compute" if compute_us >= memory_us else "memory"


def _intensity(flops: float, bytes_: float) -> float:
    if bytes_ == 0:
        return math.inf if flops else 0.0
    return flops / bytes_
