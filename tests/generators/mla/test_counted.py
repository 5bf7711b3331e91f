"""How rates are counted: as the cost model counts, over the time of a record."""

from __future__ import annotations

from generators.mla import counted


def test_one_problem_is_worked_out_from_its_record(site):
    told = counted.text(site, site.link("how-times-are-taken.md"))
    mine, theirs = counted.usual(site)
    b, h, s, t = (mine.record.problem[name] for name in "bhst")
    assert mine.work.flops == 2 * b * h * s * t * (576 + 512)
    assert mine.work.bytes == 2 * b * (t * 576 + h * s * (576 + 512))
    assert f"= {mine.work.flops / 1e9:.1f} GFLOP" in told
    assert f"{mine.work.flops / mine.total.median_us / 1e6 / 989.5:.0%} of 989.5 TFLOP/s" in told
    assert f"{mine.total.median_us / theirs.total.median_us:.2f} of its time" in told
    assert "\n\n[flash" in told
