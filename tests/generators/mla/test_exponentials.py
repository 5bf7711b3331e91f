"""Exponentials per card and form: shares against rates stated elsewhere, and their verdicts."""

from __future__ import annotations

import pytest

from generators.mla import exponentials
from mla_var3 import devices
from mla_var3.workloads.mla import regimes
from mla_var3.workloads.mla.regimes import Shape

H100, B200 = "nvidia-h100-sxm", "nvidia-b200"


def test_multiply_adds_are_those_of_the_cost_model():
    shape = Shape(b=1)
    latent, decompressed, _ = exponentials.widths(shape).values()
    for kernel, width in (("flash_mla", latent), ("flash_attention", decompressed)):
        s, t = 256, 4096
        scores = shape.b * shape.h * s * t
        assert regimes.cost(kernel, shape, s, t).flops / scores / 2 == pytest.approx(
            width, rel=0.01
        )


def test_hopper_s_ratio_is_that_of_its_published_rates():
    """FlashAttention-3 gives 989 TFLOPS and 3.9 of special functions."""
    assert exponentials.TENSOR["sm_90"] / exponentials.UNIT == pytest.approx(989 / 3.9, rel=0.02)


def test_the_tensor_rate_is_near_the_card_s_at_its_clock():
    for key, clock in ((H100, 1.83e9), (B200, 1.85e9)):
        device = devices.load(key)
        rate = exponentials.TENSOR[device.sm] * device.sm_count * clock / 1e12
        assert rate == pytest.approx(device.bound("bf16").tflops, rel=0.05)


def test_a_b200_is_asked_twice_as_much_and_prefill_more_than_decode(site):
    hopper, blackwell = devices.load(H100), devices.load(B200)
    latent, decompressed, usual = exponentials.widths(Shape()).values()
    for width in (latent, decompressed, usual):
        assert exponentials.share(blackwell, width) == 2 * exponentials.share(hopper, width)
    assert exponentials.share(blackwell, usual) == 1
    assert exponentials.verdict(exponentials.share(blackwell, usual)).startswith("yes")
    assert exponentials.verdict(exponentials.share(blackwell, decompressed)).startswith("perhaps")
    assert exponentials.verdict(exponentials.share(blackwell, latent)).startswith("no")


def test_the_table_says_every_form_and_that_nothing_was_timed(site):
    text = exponentials.text(site, site.link("glossary/special-function-unit.md"))
    assert all(f"| {form} | {n} |" in text for form, n in exponentials.widths(Shape()).items())
    assert "not timed here" in text
