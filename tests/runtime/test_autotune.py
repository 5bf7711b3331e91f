from __future__ import annotations

import dataclasses
import json

import pytest
import torch

from mla_var3.errors import InputError, ToolchainError
from mla_var3.runtime import KernelPipeline, autotune, registry

from .toys import ToyPlan, ToyTiling, kernel

TIMES = {8: 30.0, 16: 20.0, 32: 10.0}


def toy(plan: ToyPlan = ToyPlan()):  # noqa: B008 - frozen
    return plan.plan(*plan.prepare_inputs())


def measure(stage) -> float:
    return TIMES[stage.tiling.tile]


@pytest.fixture(autouse=True)
def root(monkeypatch, tmp_path):
    monkeypatch.setenv("HYPERMLA_ROOT", str(tmp_path))
    return tmp_path


class TestCandidates:
    def test_the_present_one_first_then_valid_ones_once_each(self):
        found = autotune.candidates(toy(), ToyPlan(), 10)
        assert [t.tile for t in found] == [16, 8, 32]  # 16 once, 1 << 20 is refused

    @pytest.mark.parametrize("limit", [1, 2])
    def test_no_more_than_the_limit(self, limit):
        assert len(autotune.candidates(toy(), ToyPlan(), limit)) == limit


class TestTuneKernel:
    def test_the_fastest_stays(self):
        stage = toy()
        tilings = autotune.candidates(stage, ToyPlan(), 10)
        trials = autotune.tune_kernel(stage, tilings, measure)
        assert [(t.tiling.tile, t.time_us) for t in trials] == [(16, 20.0), (8, 30.0), (32, 10.0)]
        assert stage.tiling.tile == 32

    def test_a_tiling_that_cannot_run_is_an_answer(self):
        def refusing(stage):
            if stage.tiling.tile == 32:
                raise ToolchainError("no\nmore")
            if stage.tiling.tile == 8:
                raise RuntimeError
            return measure(stage)

        stage = toy()
        trials = autotune.tune_kernel(stage, [ToyTiling(tile=n) for n in (8, 16, 32)], refusing)
        assert [(t.time_us, t.error) for t in trials] == [(None, "?"), (20.0, None), (None, "no")]
        assert stage.tiling.tile == 16

    def test_the_first_is_kept_when_none_runs(self):
        def refusing(stage):
            raise RuntimeError("out of memory")

        stage = toy()
        autotune.tune_kernel(stage, [ToyTiling(tile=8), ToyTiling(tile=32)], refusing)
        assert stage.tiling.tile == 8

    def test_an_interrupt_is_no_answer(self):
        def interrupted(stage):
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            autotune.tune_kernel(toy(), [ToyTiling()], interrupted)


class TestTune:
    def pipeline(self) -> KernelPipeline:
        x = torch.arange(40.0)
        return KernelPipeline(_name="p", stages=[kernel("toy", x), kernel("other", x)])

    def test_every_stage_that_is_not_fixed(self):
        obj, told = self.pipeline(), []
        plan = ToyPlan(tilings={"toy": ToyTiling(tile=8)})
        trials = autotune.tune(obj, plan, measure, limit=10, progress=told.append)
        assert list(trials) == ["other"]
        assert obj.tilings() == {"toy": ToyTiling(), "other": ToyTiling(tile=32)}
        assert told == ["tuning other: 3 tilings"]

    def test_pruned_tilings_are_not_timed(self):
        obj = self.pipeline()
        trials = autotune.tune(
            obj, ToyPlan(), measure, limit=10,
            prune=lambda _, tilings: [t for t in tilings if t.tile < 32],
        )  # fmt: skip
        assert [t.tiling.tile for t in trials["toy"]] == [16, 8]

    def test_nothing_is_timed_when_one_is_left(self):
        obj = self.pipeline()
        assert autotune.tune(obj, ToyPlan(), measure, limit=1) == {}
        assert autotune.tune(obj, ToyPlan(), measure, limit=9, prune=lambda *_: []) == {}
        assert obj.tilings()["toy"] == ToyTiling()


class TestStore:
    version = registry.find("flash_mla")
    plan = ToyPlan(extra=1)

    def saved(self, **tilings):
        return autotune.save(self.version, self.plan, "gpu", tilings or {"toy": ToyTiling(tile=8)})

    def test_what_is_saved_is_loaded(self, root):
        path = self.saved(toy=ToyTiling(tile=8, num_worker_warps=8))
        assert path == root / "out/tuned/gpu/flash_mla/v0/size40-extra1-bf16.json"
        loaded = autotune.load(self.version, self.plan, "gpu")
        assert loaded == {"toy": ToyTiling(tile=8, num_worker_warps=8)}

    def test_nothing_is_loaded_elsewhere(self):
        self.saved()
        assert autotune.load(self.version, self.plan, "other-gpu") == {}
        assert autotune.load(registry.find("flash_mla", "v1"), self.plan, "gpu") == {}
        assert autotune.load(self.version, dataclasses.replace(self.plan, size=41), "gpu") == {}

    @pytest.mark.parametrize(
        "change",
        [
            lambda stored: "{",
            lambda stored: "[]",
            lambda stored: "{}",
            lambda stored: json.dumps({**stored, "sources": {"kernels/k.py": "0" * 40}}),
            lambda stored: json.dumps({**stored, "tilings": {"gone": {}}}),
            lambda stored: json.dumps({**stored, "tilings": {"toy": {"tile": 12}}}),
            lambda stored: json.dumps({**stored, "tilings": {"toy": {"tile": "8"}}}),
            lambda stored: json.dumps({**stored, "tilings": {"toy": {"rows": 8}}}),
            lambda stored: json.dumps({**stored, "tilings": ["toy"]}),
            lambda stored: json.dumps({**stored, "tilings": None}),
        ],
    )
    def test_a_store_that_does_not_fit_is_tuned_anew(self, change):
        path = self.saved()
        path.write_text(change(json.loads(path.read_text())))
        assert autotune.load(self.version, self.plan, "gpu") == {}

    def test_a_store_that_is_no_text_is_tuned_anew(self):
        self.saved().write_bytes(b"\xff\xfe\x00")
        assert autotune.load(self.version, self.plan, "gpu") == {}


class TestHistory:
    def tried(self):
        stage = toy()
        tilings = autotune.candidates(stage, ToyPlan(), 3)
        return {"toy": autotune.tune_kernel(stage, tilings, measure)}

    def test_every_run_adds_what_it_tried(self):
        version, plan = registry.find("gemm", "v0"), ToyPlan()
        assert autotune.history(version, plan, "gpu") == []
        for run in ("one", "two"):
            path = autotune.remember(version, plan, "gpu", run, self.tried())
        found = autotune.history(version, plan, "gpu")
        assert [(t["run"], t["tiling"]["tile"], t["time_us"]) for t in found] == [
            (run, tile, TIMES[tile]) for run in ("one", "two") for tile in (16, 8, 32)
        ]
        assert path.parent == autotune.store_path(version, plan, "gpu").parent

    @pytest.mark.parametrize(("line", "said"), [("{", "is not a trial"), ("[]", "is not a trial"),
                                                ('{"run": 1}', "has no error")])  # fmt: skip
    def test_a_broken_line_is_named(self, line, said):
        version = registry.find("gemm", "v0")
        path = autotune.remember(version, ToyPlan(), "gpu", "one", self.tried())
        path.write_text(path.read_text() + line + "\n")
        with pytest.raises(InputError, match=rf"trials.jsonl, line 4: {said}"):
            autotune.history(version, ToyPlan(), "gpu")
