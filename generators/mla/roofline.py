"""Draws the figure of the glossary term roofline: one device's rates, and MLA decode under them."""

from __future__ import annotations

import functools
import math

from generators.draw import shapes
from generators.draw.shapes import BLUE, EDGE, ORANGE, QUIET, path, text
from mla_var3 import devices
from mla_var3.workloads.mla import regimes

#: The GPU whose rates stand in the picture.
DEVICE = "nvidia-h200-sxm"


@functools.cache
def picture() -> str:
    """The two rates of one device, and where latent and decompressed decode stand."""
    rates = regimes.ceilings_of(DEVICE)
    points = {
        "latent": (BLUE, _intensity("flash_mla")),
        "decompressed": (ORANGE, _intensity("flash_attention")),
    }
    left, width, height = 60, 520, 230

    def place(intensity: float, rate: float) -> tuple[float, float]:
        return (
            left + (width - left - 20) * math.log10(intensity / 0.3) / math.log10(10000 / 0.3),
            height - 40 - (height - 70) * math.log10(rate) / 3,
        )

    def attained(intensity: float) -> float:
        return min(rates.tflops, intensity * rates.gbps / 1000)

    ridge = rates.tflops * 1000 / rates.gbps
    parts = [path([place(x, attained(x)) for x in (0.3, ridge, 10000)], QUIET)]
    for name, (color, intensity) in points.items():
        x, y = place(intensity, attained(intensity))
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6" style="fill:{color}"/>')
        parts.append(text(x + 10, y + 16, f"{name}, {intensity:.3g} FLOP/B", fill=color, bold=True))
    x, y = place(ridge, rates.tflops)
    parts.append(text(x - 6, y - 8, f"ridge {ridge:.0f} FLOP/B", anchor="middle"))
    parts.append(path([(left, height - 36), (width - 20, height - 36)], EDGE))
    parts.append(text(left, height - 14, "FLOPs per byte, logarithmic", fill=QUIET))
    message = (
        f"{devices.load(DEVICE).name}: {rates.tflops:g} TFLOP/s and {rates.gbps:g} GB/s, as "
        f"attained. At s = 1 and t = 4096 latent decode does {points['latent'][1]:.0f} FLOPs per "
        f"byte, decompressed decode {points['decompressed'][1]:.2g}; the ridge lies at {ridge:.0f}."
    )
    return shapes.figure(shapes.svg(width, height, parts, "Roofline", message), message)


def _intensity(kernel: regimes.Kernel) -> float:
    work = regimes.cost(kernel, regimes.Shape(), 1, 4096)
    return work.flops / work.bytes
