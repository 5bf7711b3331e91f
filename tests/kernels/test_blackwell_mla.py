"""Latent decode in tensor memory: right and clean under several schedules of the emulator."""

from __future__ import annotations

import dataclasses

import pytest
import torch

pytest.importorskip("cutlass", reason="needs nvidia-cutlass-dsl")

from mla_var3.emulator import DEFAULT, STRICT, Options
from mla_var3.kernel.cute_python.kit.even import Cut, even_cuts
from mla_var3.languages.cute import compile as cute_compile
from mla_var3.languages.cute import emulation
from mla_var3.runtime import registry

VERSIONS = [v for v in registry.versions() if v.design == "blackwell_mla"]
IDS = [v.version for v in VERSIONS]
#: Rows of two tiles, the second one in part; a sequence that is cut, and one that is not.
PROBLEM = {"b": 2, "h": 48, "s": 3, "t": 330, "page": 64, "lengths": "one", "causal": True}


def launched(plan, inputs, options):
    """What the emulator finds in both stages, and the outputs."""
    found, pipeline = [], plan.plan(*inputs)
    for _, stage in pipeline.stages():
        host, arguments = stage.host()
        outputs = tuple(stage.output_tensors.values())
        _, run = emulation.emulate(stage.name, host, arguments, outputs, options)
        found += run.diagnostics
    return found, pipeline.output_tensors


def wrong(outputs, expected, plan):
    """Outputs that are off by more than rounding."""
    most = 3e-2 if plan.dtype == "fp8" else 5e-3
    for name, want in expected.items():
        got = outputs[name].float()
        limit = most * want.norm() if name == "o" else torch.tensor(2e-3)
        error = (got - want).norm() if name == "o" else (got - want).nan_to_num().abs().max()
        if not error <= limit or not torch.equal(got.isfinite(), want.isfinite()):
            yield name, float(error)


@pytest.mark.slow
@pytest.mark.sampled(4)
@pytest.mark.parametrize("version", VERSIONS, ids=IDS)
@pytest.mark.parametrize(
    ("model", "seed"),
    [(DEFAULT, None), (STRICT, 1), (STRICT, 2)],
    ids=lambda value: getattr(value, "name", value),
)
def test_values_and_order_hold_under_any_schedule(version, model, seed):
    plan = version.plan_class()(**PROBLEM)
    inputs = plan.prepare_inputs("cpu")
    found, outputs = launched(plan, inputs, Options(model=model, seed=seed))
    assert found == []
    assert list(wrong(outputs, plan.reference_fn(*inputs), plan)) == []


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("version", VERSIONS, ids=IDS)
@pytest.mark.parametrize(
    "fields",
    [
        {"h": 128, "s": 1, "t": 64, "causal": False, "lengths": None},
        {"b": 1, "h": 16, "s": 8, "t": 5},  # rows that see no key
        {"b": 3, "h": 128, "s": 2, "t": 200, "page": None, "lengths": "ragged"},
        {"b": 1, "h": 64, "s": 1, "t": 900, "spread": 48.0},  # maxima that keep growing
    ],
    ids=str,
)
def test_problems(version, fields):
    plan = version.plan_class()(**PROBLEM | fields)
    inputs = plan.prepare_inputs("cpu")
    found, outputs = launched(plan, inputs, Options())
    assert found == []
    assert list(wrong(outputs, plan.reference_fn(*inputs), plan)) == []


@pytest.mark.sampled(4)
@pytest.mark.parametrize("version", VERSIONS, ids=IDS)
@pytest.mark.parametrize("workers", [3, 5])
def test_parts_of_an_odd_number_of_tiles(version, workers):
    """The last tile of such a part ends in the middle of a pair of tiles of 64 keys."""
    cuts = even_cuts([10, 3, 7], workers)
    assert any(row[Cut.END_TILE] % 2 for row in cuts)
    drawn = {"cuts": lambda _: cuts, "drawn": lambda _: [600, 190, 448]}
    few = type("Few", (version.plan_class(),), drawn)
    plan = few(**PROBLEM | {"b": 3, "h": 16, "s": 1, "t": 640, "lengths": "ragged"})
    inputs = plan.prepare_inputs("cpu")
    found, outputs = launched(plan, inputs, Options())
    assert found == []
    assert list(wrong(outputs, plan.reference_fn(*inputs), plan)) == []


@pytest.mark.parametrize("version", VERSIONS, ids=IDS)
def test_other_archs_are_refused_in_a_sentence(version):
    plan = version.plan_class()(**PROBLEM)
    (_, stage), _ = plan.plan(*plan.prepare_inputs("meta")).stages()
    said = cute_compile.refusal(stage.host()[0], "sm_90")
    assert said
    assert "tcgen05" in said
    assert cute_compile.refusal(stage.host()[0], "sm_100") is None


@pytest.mark.parametrize("version", VERSIONS, ids=IDS)
def test_check_tries_both_masks_and_cut_sequences(version):
    plans = version.plan_class()(**PROBLEM).check_plans()
    assert {plan.causal for plan in plans} == {True, False}
    assert any(len(plan.cuts()) > plan.b for plan in plans)
    assert all(dataclasses.replace(plan) == plan for plan in plans)
