from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mla_var3 import devices
from mla_var3.devices.ceilings import Ceilings, Power
from mla_var3.errors import DeviceFigureError, HyperMlaError, KnowledgeError, UnknownNameError
from mla_var3.workloads import mla
from mla_var3.workloads.mla import regimes
from mla_var3.workloads.mla.regimes import (
    KERNELS,
    Shape,
    calculator_spec,
    cell,
    cost,
    prediction,
    regime_map,
)

H200 = "nvidia-h200-sxm"
SIZES = st.builds(
    Shape,
    b=st.integers(1, 256),
    h=st.sampled_from([16, 32, 64, 128]),
    d=st.sampled_from([64, 128]),
    k=st.sampled_from([256, 512]),
    p=st.sampled_from([32, 64]),
    w=st.sampled_from([1, 2]),
)
POWERS = st.builds(
    Power, watts=st.floats(100, 1500), joules_per_flop=st.floats(1e-13, 1e-11),
    joules_per_byte=st.floats(1e-11, 1e-9), static=st.floats(0, 90),
    tflops=st.none() | st.floats(50, 3000),
)  # fmt: skip
ROOFS = st.builds(
    Ceilings,
    tflops=st.floats(50, 3000),
    gbps=st.floats(500, 10000),
    power=st.none() | POWERS,
)


def names(shape, s, t, roof, n=0):
    return {
        "b": shape.b, "h": shape.h, "s": s, "t": t, "d": shape.d, "k": shape.k, "p": shape.p,
        "w": shape.w, "n": n, "tflops": roof.tflops, "gbps": roof.gbps,
    }  # fmt: skip


def evaluate(expression: str, values) -> float:
    """A calculator expression; of JavaScript it uses only arithmetic and Math."""

    class Math:
        max = staticmethod(max)
        pow = staticmethod(math.pow)
        sqrt = staticmethod(math.sqrt)

    return eval(expression, {"__builtins__": {}, "Math": Math}, values)


@given(SIZES, st.integers(1, 512), st.integers(1, 1 << 17), st.floats(0, 1), ROOFS)
def test_the_calculators_formulas_are_the_librarys(shape, s, t, part, roof):
    spec = SPEC
    n = round(t * part)
    for row in spec["kernels"]:
        expected = cost(row["name"], shape, s, t, n)
        values = names(shape, s, t, roof, n)
        assert evaluate(row["flops"], values) == pytest.approx(expected.flops)
        assert evaluate(row["bytes"], values) == pytest.approx(expected.bytes)


@settings(max_examples=40)
@given(SIZES, st.integers(1, 512), st.integers(1, 1 << 13), ROOFS)
def test_the_calculators_rule_finds_the_librarys_best_n(shape, s, t, roof):
    """Follow the rule that ``calculator_spec`` states, as a page would."""
    spec = SPEC
    mixed = next(row for row in spec["kernels"] if row["name"] == "mla_var6_plus")
    power = regimes.power_us(roof)

    def time(n):
        values = names(shape, s, t, roof, n)
        values |= {part: evaluate(mixed[part], values) for part in ("flops", "bytes")}
        return max(evaluate(spec["time_us"], values), evaluate(power, values))

    best = min((*range(0, t, spec["multiple"]), t), key=lambda n: (time(n), n))
    ends = [n for n in (0, t) if time(n) <= time(best) * (1 + spec["tie"])]
    found = regimes.best_n(shape, s, t, roof)
    assert time(found) == pytest.approx(time(ends[0] if ends else best))


@given(SIZES, st.integers(1, 300), st.integers(1, 1 << 15), ROOFS)
def test_no_kernel_beats_the_winner_by_more_than_a_tie(shape, s, t, roof):
    point = cell(shape, s, t, roof)
    fastest = min(point.time_us.values())
    assert point.time_us[point.winner] <= fastest * (1 + regimes.TIE)
    for simpler in KERNELS[: KERNELS.index(point.winner)]:
        assert point.time_us[simpler] > fastest * (1 + regimes.TIE)
    assert 0 <= point.n <= t
    assert point.gain >= 1 / (1 + regimes.TIE)


def test_the_map(tmp_path):
    found = regime_map(H200, s_values=(1, 16, 32, 512), t_values=(1024, 4096))
    assert len(found.cells) == 8
    assert found.cell(16, 4096).s == 16
    assert found.cell(16, 4096).t == 4096
    assert found.cell(1, 4096).winner == "flash_mla"
    assert found.cell(16, 4096).winner == "flash_mla"  # By two rates it was the mix.
    assert found.cell(32, 4096).winner == "mla_var6_plus"
    assert found.cell(512, 4096).winner == "flash_attention"
    data = json.loads(json.dumps(found.data()))
    assert data["device"] == H200
    assert data["cells"][0]["time_us"].keys() == set(KERNELS)
    assert found.ceiling_kind == "measured"


def test_unknown_devices_are_refused():
    with pytest.raises(UnknownNameError, match="device"):
        regime_map("nvidia-h300")


def test_devices_with_unknown_ceilings_are_left_out(monkeypatch):
    whole = devices.Device.ceilings

    def ceilings(self, dtype="bfloat16", *, published=False):
        if self.key == H200:
            raise DeviceFigureError("UNKNOWN")
        return whole(self, dtype, published=published)

    monkeypatch.setattr(devices.Device, "ceilings", ceilings)
    keys = [device.key for device in regimes.usable_devices()]
    assert H200 not in keys
    assert keys


def test_the_flops_crossing_is_where_the_flops_are_equal():
    shape = Shape()
    crossing = regimes.flops_crossing(shape.d, shape.k)
    assert crossing == pytest.approx(170.67, abs=0.01)
    for s in (math.floor(crossing), math.ceil(crossing)):
        latent = cost("flash_mla", shape, s, 4096).flops
        assert (regimes.decompressing_flops(shape, s, 4096) < latent) is (s > crossing)
    with pytest.raises(KnowledgeError, match="must exceed"):
        regimes.flops_crossing(128, 128)


@given(st.sampled_from([16, 64, 128]), st.integers(1, 64), st.integers(64, 1 << 15))
def test_the_flops_crossing_depends_on_neither_heads_nor_context(h, b, t):
    shape = Shape(b=b, h=h)
    for s, more in ((170, True), (171, False)):
        latent = cost("flash_mla", shape, s, t).flops
        assert (regimes.decompressing_flops(shape, s, t) > latent) is more


def test_multiply_adds_of_a_pair():
    assert [regimes.pair_multiply_adds(k) for k in KERNELS[:2]] == [1088, 320]


@pytest.mark.parametrize("h", [16, 128])
@pytest.mark.parametrize("t", [512, 8192])
def test_crossings_by_bisection_are_those_of_a_scan(h, t):
    shape, roof, limit = Shape(h=h), regimes.ceilings_of(H200), 300

    def scan(holds):
        start = None
        for s in range(limit, 0, -1):
            if not holds(s):
                break
            start = s
        return start

    def time(kernel, s):
        return prediction(kernel, shape, s, t, roof).time_us

    for faster, slower in (("flash_attention", "flash_mla"), ("mla_var6_plus", "flash_mla"),
                           ("flash_mla", "flash_attention")):  # fmt: skip
        expected = scan(lambda s, f=faster, o=slower: time(f, s) * 1.01 < time(o, s))
        assert regimes.crossing(faster, slower, shape, t, roof, limit) == expected
    expected = scan(
        lambda s: (
            (found := prediction("flash_mla", shape, s, t, roof)).compute_us >= found.memory_us
        )
    )
    assert regimes.compute_bound_from("flash_mla", shape, t, roof, limit) == expected
    expected = scan(lambda s: cell(shape, s, t, roof).winner == "flash_attention")
    assert regimes.recommended_from("flash_attention", shape, t, roof, limit) == expected


@given(SIZES, st.integers(1, 64), st.integers(64, 1 << 15), ROOFS)
@settings(max_examples=50)
def test_a_shared_prefix_of_nothing_changes_nothing(shape, s, t, roof):
    own = cost("flash_mla", shape, s, t)
    assert regimes.shared_prefix_cost(shape, s, t, 0, decompressed=False) == own
    extra = regimes.shared_prefix_cost(shape, s, t, 0, decompressed=True)
    assert extra.flops == own.flops
    assert regimes.shared_prefix_gain(shape, s, t, 0, roof) <= 1


def test_a_shared_prefix_pays_with_the_batch():
    roof = regimes.ceilings_of(H200)
    gains = [regimes.shared_prefix_gain(Shape(b=b), 1, 8192, 8192, roof) for b in (1, 16, 256)]
    assert gains == sorted(gains)
    assert gains[0] < 1 < gains[-1]
    with pytest.raises(KnowledgeError, match="between 0 and t"):
        regimes.shared_prefix_cost(Shape(), 1, 10, 11, decompressed=True)


def test_a_prefix_that_is_not_shared_is_read_once_all_the_same():
    """At b=1 sharing saves nothing: the latent cost is that of the plain kernel."""
    shape = Shape(b=1)
    shared = regimes.shared_prefix_cost(shape, 4, 100, 40, decompressed=False)
    assert shared == cost("flash_mla", shape, 4, 100)


def test_the_specification_is_plain_data():
    assert json.loads(json.dumps(SPEC)) == SPEC
    assert [row["name"] for row in SPEC["kernels"]] == list(KERNELS)
    h200 = next(d for d in SPEC["devices"] if d["key"] == H200)
    assert h200["tflops"] == regimes.ceilings_of(H200).tflops
    assert h200["sources"]
    defaults = {row["name"]: row["default"] for row in SPEC["inputs"]}
    assert defaults["h"] == 128
    assert evaluate(SPEC["flops_crossing"], defaults) == pytest.approx(512 * 128 / 384)


@pytest.mark.parametrize("name", sorted(regimes.FIGURES))
def test_every_figure_is_rendered(name):
    arguments = {
        "DEVICE": H200, "KERNEL": "flash_mla", "FASTER": "flash_attention", "SLOWER": "flash_mla",
        "T": "4096", "flops|bytes": "bytes",
    }  # fmt: skip
    words = regimes.FIGURES[name].usage.split()[1:]
    text = regimes.figure(name, *(arguments[word] for word in words))
    assert text
    assert (name in regimes.TABLES) is text.startswith("|")
    assert text.count("\n") > 1 or name not in regimes.TABLES


@pytest.mark.parametrize("heads", [8, 16, 32, 64, 128])
def test_the_latent_border_is_a_number_of_query_rows(heads):
    shape, ceilings = regimes.Shape(h=heads), regimes.ceilings_of(H200)
    rows = regimes.border_rows(shape, ceilings)
    assert f"{rows:.0f}" == regimes.figure("border-rows", H200)
    # With a long context queries and outputs count for little, and s is the next whole number.
    exact = regimes.compute_bound_from("flash_mla", shape, 131072, ceilings)
    assert exact == math.ceil(rows / heads)


def test_published_ridge_leaves_measurements_out():
    h200 = devices.load(H200)
    peaks = [h200.figure(name).normalised for name in ("tensor_bf16_fp32acc", "dram_bandwidth")]
    wanted = f"{peaks[0] * 1e3 / peaks[1]:.0f} FLOP/byte"
    assert regimes.figure("published-ridge", H200) == wanted != regimes.figure("ridge", H200)


def test_figures_say_when_there_is_no_such_s():
    assert regimes.figure("crossing", H200, "flash_mla", "flash_mla", "64") == "no s up to 4096"


@pytest.mark.parametrize(
    "arguments",
    [
        ("nothing",), ("ridge",), ("ridge", "nvidia-h300"), ("formula", "flash_mla", "watts"),
        ("pair", "flash"), ("compute-bound", H200, "flash_mla", "many"),
        ("compute-bound", H200, "flash_mla", "0"), ("crossing", H200, "x", "flash_mla", "64"),
        ("formula", "x", "flops"),
    ],
)  # fmt: skip
def test_wrong_figures_are_refused(arguments):
    with pytest.raises(HyperMlaError):
        regimes.figure(*arguments)


def test_formulas_are_latex():
    assert regimes.figure("formula", "flash_mla", "flops") == ("$2 b h s t \\left(2 k + p\\right)$")
    assert mla.flash_mla_cost(1, 1, 1, 1, 1, 1, 1).flops == 6


SPEC = calculator_spec()
