"""The project's devices, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from pydantic import ValidationError

from mla_var3 import devices
from mla_var3.devices import Device, Figure
from mla_var3.devices.model import parse, read
from mla_var3.errors import DeviceFigureError, HyperMlaError, UnknownNameError


def figure(
    metric: str = "dram_bandwidth", value: object = 1, **changes: object
) -> dict[str, object]:
    row: dict[str, object] = {
        "metric": metric,
        "value": value,
        "unit": "GB/s",
        "source": "a data sheet",
        "address": "https://example.org/sheet",
        "quoted": "1 GB/s",
        "kind": "vendor-datasheet",
        "evidence": "direct",
    }
    return {**row, **changes}


def device(*figures: dict[str, object], **changes: object) -> Device:
    head = {"key": "x", "name": "X", "vendor": "NVIDIA", "arch": "A", "sm": "sm_90"}
    return Device.model_validate({**head, "figures": figures, **changes})


FIGURES = [
    (dev, metric)
    for dev in devices.all_devices()
    for metric in dict.fromkeys(fig.metric for fig in dev.figures)
]


def test_every_device_answers_or_says_what_is_missing() -> None:
    absent = 0
    for dev, metric in FIGURES:
        rows = [fig for fig in dev.figures if fig.metric == metric]
        if any(fig.is_number and not fig.is_sparse for fig in rows):
            assert dev.figure(metric).normalised > 0
        else:
            absent += 1
            with pytest.raises(DeviceFigureError, match=r"UNKNOWN|does not support"):
                dev.figure(metric)
    assert absent > 20


@pytest.mark.parametrize("dev", devices.all_devices(), ids=lambda d: d.key)
def test_ceilings_of_every_device(dev: Device) -> None:
    roof = dev.ceilings("bf16")
    assert roof.tflops > 50
    assert 500 < roof.gbps < 10_000
    assert len(roof.sources) == 2


@pytest.mark.parametrize(
    "dev", [d for d in devices.all_devices() if d.is_compile_target], ids=lambda d: d.key
)
def test_every_compile_target_has_sm_limits(dev: Device) -> None:
    limits = dev.sm_limits()
    assert limits.warps_per_sm * limits.warp_size == limits.threads_per_sm
    assert limits.reserved_shared_per_block == 1024
    assert (
        limits.shared_memory_per_block_max + limits.reserved_shared_per_block
        == limits.shared_memory_per_sm
    )
    assert limits.registers_per_sm == 65536
    assert limits.register_allocation_unit == 256
    assert dev.compile_arch == dev.sm
    assert dev.sm_count > 0
    assert dev.l2_bytes % 2**20 == 0


def test_h200_prefers_what_was_measured() -> None:
    h200 = devices.load("nvidia-h200-sxm")
    roof = h200.ceilings(torch.bfloat16)
    assert (roof.tflops, roof.gbps, roof.source_kind) == (694.0, 4270.0, "measured")
    assert "driver 580.159" in roof.sources[0]
    published = h200.ceilings("bfloat16", published=True)
    assert (published.tflops, published.gbps) == (989.5, 4800.0)
    assert published.source_kind == "published"
    # Both 16-bit types stand on one basis.
    half = h200.ceilings("float16")
    assert (half.tflops, half.source_kind) == (722.0, "measured")
    assert h200.sm_count == 132
    assert h200.l2_bytes == 60 * 2**20


def has_figure(dev: Device, metric: str) -> bool:
    """Whether a dense figure is stated."""
    return any(f.metric == metric and f.is_number and not f.is_sparse for f in dev.figures)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("dev", devices.all_devices(), ids=lambda d: d.key)
def test_no_rate_that_was_attained_is_above_a_bound(dev: Device, dtype: str) -> None:
    metric = devices.dtype_metric(dtype)
    if not has_figure(dev, metric):
        with pytest.raises(DeviceFigureError, match="UNKNOWN"):
            dev.bound(dtype)
        return
    bound = dev.bound(dtype)
    for rate, name in ((bound.tflops, metric), (bound.gbps, "dram_bandwidth")):
        assert rate >= dev.figure(name).normalised
        measured = [f for f in dev.figures if f.metric == f"measured_{name}" and f.is_number]
        assert all(rate >= f.normalised for f in measured)
    for ceilings in (dev.ceilings(dtype), dev.ceilings(dtype, published=True)):
        assert bound.tflops >= ceilings.tflops
        assert bound.gbps >= ceilings.gbps
    assert len(bound.sources) == 2


def test_a_bound_is_above_what_was_measured_and_published() -> None:
    peak = figure("tensor_bf16_fp32acc", 900, unit="TFLOPS")
    runs = [
        figure("measured_tensor_bf16_fp32acc", rate, unit="TFLOPS", kind="measured", condition=how)
        for rate, how in ((694, "random"), (950, "zeros"))
    ]
    reads = figure("measured_dram_bandwidth", 4, kind="measured")
    bound = device(figure(value=5), peak, *runs, reads).bound("bf16")
    assert (bound.tflops, bound.gbps) == (950, 5)
    assert bound.source_kind == "measured compute, published bandwidth"
    assert "950 TFLOPS (zeros)" in bound.sources[0]
    assert device(figure(value=5), peak, reads).bound("bf16").tflops == 900


def test_h200_has_one_bound_for_both_element_types() -> None:
    h200 = devices.load("nvidia-h200-sxm")
    bf16, fp16 = h200.bound("bf16"), h200.bound("fp16")
    assert (bf16.tflops, bf16.gbps) == (fp16.tflops, fp16.gbps) == (989.5, 4800.0)
    assert bf16.source_kind == fp16.source_kind


@pytest.mark.parametrize(
    "dev",
    [d for d in devices.all_devices() if has_figure(d, "tensor_fp16_fp32acc")],
    ids=lambda d: d.key,
)
def test_where_both_element_types_have_one_peak_they_have_one_bound(dev: Device) -> None:
    bf16, fp16 = dev.bound("bf16"), dev.bound("fp16")
    peaks = [dev.figure(devices.dtype_metric(d)).normalised for d in ("bf16", "fp16")]
    assert bf16.gbps == fp16.gbps
    assert (bf16.tflops == fp16.tflops) == (peaks[0] == peaks[1])


def test_a_bound_without_a_published_rate_is_unknown() -> None:
    with pytest.raises(DeviceFigureError, match="states no tensor_bf16_fp32acc"):
        device(figure()).bound()
    with pytest.raises(UnknownNameError, match="element type 'complex64'"):
        devices.load("nvidia-h200-sxm").bound(torch.complex64)


def test_a_machine_is_what_plans_ask_a_device() -> None:
    device = devices.load("nvidia-h200-sxm")
    h200, power = device.machine("bf16"), device.ceilings("bf16").power
    assert h200 == devices.Machine("nvidia-h200-sxm", 694.0, 4270.0, 132, power)
    assert power is not None
    assert h200.rates.power == power
    assert h200.ridge == pytest.approx(694e3 / 4270)
    with pytest.raises(DeviceFigureError, match="UNKNOWN"):
        devices.load("amd-mi308x").machine("fp16")


def test_measured_compute_beside_a_published_bandwidth_is_said() -> None:
    gemm = figure("measured_tensor_bf16_fp32acc", unit="TFLOPS", kind="measured")
    roof = device(figure(), gemm).ceilings("bfloat16")
    assert roof.source_kind == "measured compute, published bandwidth"


def test_conflict_is_resolved_by_the_file() -> None:
    b200 = devices.load("nvidia-b200")
    assert b200.figure("dram_bandwidth").normalised == 7700
    assert b200.figure("dram_bandwidth", "up to").normalised == 8000


def test_unknown_figure_says_what_is_missing() -> None:
    with pytest.raises(
        DeviceFigureError, match="tensor_fp16_fp32acc of AMD Instinct MI308X is UNK"
    ):
        devices.load("amd-mi308x").ceilings("fp16")


def test_unsupported_figure_says_why() -> None:
    with pytest.raises(DeviceFigureError, match="does not support tensor_fp4: FP4 is not"):
        devices.load("nvidia-h200-sxm").figure("tensor_fp4")


def test_sparse_figure_is_not_used_as_dense() -> None:
    with pytest.raises(DeviceFigureError, match="with sparsity only"):
        devices.load("nvidia-h800-sxm").figure("tensor_tf32")
    assert devices.load("nvidia-h200-sxm").figure("tensor_tf32", "sparsity").normalised == 989


def test_amd_is_listed_but_no_compile_target() -> None:
    mi300x = devices.find("AMD Instinct MI300X")
    assert not mi300x.is_compile_target
    with pytest.raises(DeviceFigureError, match="listed for comparison only"):
        _ = mi300x.compile_arch
    with pytest.raises(DeviceFigureError):
        mi300x.sm_limits()


@pytest.mark.parametrize(
    "name", ["nvidia-h200-sxm", "NVIDIA H200", "nvidia h200 sxm", " NVIDIA H200"]
)
def test_find_by_key_name_and_torch_name(name: str) -> None:
    assert devices.find(name).key == "nvidia-h200-sxm"


def test_unknown_device_lists_what_there_is() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'nvidia-b200'"):
        devices.find("nvidia-b20")
    with pytest.raises(UnknownNameError, match="known: amd-mi300x"):
        devices.load("NVIDIA H200")


@pytest.mark.parametrize(
    ("arch", "key"),
    [
        ("sm_80", "nvidia-a100-80gb-sxm"),
        ("sm_90", "nvidia-h200-sxm"),
        ("sm_90a", "nvidia-h200-sxm"),
        ("sm_100", "nvidia-b200"),
        ("sm_100f", "nvidia-b200"),
        ("sm_120", "nvidia-rtx-5090"),
    ],
)
def test_default_device_of_an_arch(arch: str, key: str) -> None:
    assert devices.default_for_arch(arch).key == key


@pytest.mark.parametrize("arch", ["sm_70", "gfx942", "sm_90x"])
def test_arch_without_a_device(arch: str) -> None:
    with pytest.raises(UnknownNameError, match="unknown arch"):
        devices.default_for_arch(arch)


@pytest.mark.parametrize(
    ("dtype", "metric"),
    [
        (torch.bfloat16, "tensor_bf16_fp32acc"),
        ("fp16", "tensor_fp16_fp32acc"),
        (torch.float8_e4m3fn, "tensor_fp8"),
        (torch.float32, "fp32_vector"),
        ("tf32", "tensor_tf32"),
    ],
)
def test_dtype_metric(dtype: str | torch.dtype, metric: str) -> None:
    assert devices.dtype_metric(dtype) == metric


def test_products_of_fp32_are_bounded_by_tf32_where_its_rate_is_stated() -> None:
    rate = {"unit": "TFLOPS"}
    rows = [figure(value=1), figure("fp32_vector", value=67, **rate)]
    sparse = figure("tensor_tf32", value=989, condition="with sparsity", **rate)
    assert device(*rows, sparse).bound("float32").tflops == 67
    dense = figure("tensor_tf32", value=494.7, **rate)
    assert device(*rows, sparse, dense).bound("fp32").tflops == 494.7
    assert device(*rows, dense).ceilings("float32").tflops == 67


def test_dtype_without_a_metric() -> None:
    with pytest.raises(UnknownNameError, match="element type 'complex64'"):
        devices.dtype_metric(torch.complex64)


def test_conflict_without_a_choice_is_an_error() -> None:
    dev = device(figure(value=1), figure(value=2))
    with pytest.raises(DeviceFigureError, match="1 GB/s, 2 GB/s and has no"):
        dev.figure("dram_bandwidth")


def test_conflicts_are_those_of_dense_figures() -> None:
    sparse = {"unit": "TFLOPS", "condition": "with sparsity, per GPU"}
    other = {**sparse, "condition": "with sparsity, per system"}
    dev = device(
        figure(value=4.8, unit="TB/s"), figure(value=4800), figure(value=4000),
        figure("tensor_fp8", 2, **sparse), figure("tensor_fp8", 16, **other),
    )  # fmt: skip
    assert {metric: len(found) for metric, found in dev.conflicts.items()} == {"dram_bandwidth": 3}
    with pytest.raises(DeviceFigureError, match=r"2 TFLOPS, 16 TFLOPS and has no \[\[used\]\]"):
        dev.figure("tensor_fp8", "with sparsity")


def test_condition_that_no_figure_has() -> None:
    with pytest.raises(DeviceFigureError, match="'peak' in its condition"):
        device(figure()).figure("dram_bandwidth", "peak")


def test_metric_that_is_not_stated() -> None:
    with pytest.raises(DeviceFigureError, match="states no tdp"):
        device(figure()).figure("tdp")
    with pytest.raises(UnknownNameError, match="device metric 'colour'"):
        device(figure()).figure("colour")


def test_same_figure_in_two_units_is_no_conflict() -> None:
    dev = device(figure(value=4.8, unit="TB/s"), figure(value=4800))
    assert dev.figure("dram_bandwidth").normalised == 4800


def test_value_of_an_unknown_figure_cannot_be_read() -> None:
    unknown = Figure(metric="tdp", value="UNKNOWN")
    with pytest.raises(DeviceFigureError, match="tdp is UNKNOWN"):
        _ = unknown.normalised
    assert unknown.normalised_unit == "W"


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        (figure(value=0), "positive number"),
        (figure(value=float("inf")), "positive number"),
        (figure(unit="MHz"), "cannot be given in 'MHz'"),
        (figure(source=""), "lacks source"),
        (figure(address=""), "lacks address"),
        (figure(quoted=""), "lacks quoted"),
        (figure(value="UNKNOWN"), "UNKNOWN figure has no unit"),
        (figure(value="NOT_SUPPORTED"), "lacks condition"),
        (figure(kind="measured"), "kind 'measured'"),
        (figure("measured_dram_bandwidth"), "kind 'measured'"),
        (figure(value="lots"), "value"),
        (figure(kind="hearsay"), "kind"),
        (figure(colour="red"), "colour"),
    ],
)
def test_figures_that_are_refused(row: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        Figure.model_validate(row)


HEAD = '[device]\nkey = "x"\nname = "X"\nvendor = "NVIDIA"\narch = "A"\nsm = "sm_90"\n'


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[device", "x.toml: cannot be read"),
        ("", "x.toml: device: the \\[device\\] table is missing"),
        (HEAD + "[[extra]]\na = 1\n", "x.toml: extra: unknown table"),
        (HEAD.replace("sm_90", "sm90"), "x.toml: sm: "),
        (HEAD + '[[figure]]\nmetric = "tdp"\nvalue = "12"\n', "figures\\[0\\] tdp.value"),
        (HEAD + 'figure = "no"\n', "device.figure|figure"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, text: str, fault: str) -> None:
    path = tmp_path / "x.toml"
    path.write_text(text)
    with pytest.raises(HyperMlaError, match=fault):
        read(path)
    dev, faults = parse(path)
    assert dev is None
    assert faults


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(DeviceFigureError, match=r"y\.toml: cannot be read"):
        read(tmp_path / "y.toml")
