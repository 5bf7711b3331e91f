"""Records of schema 1 are brought to today's as they are read."""

from __future__ import annotations

import copy
import json

import pytest

from mla_var3 import evidence
from mla_var3.errors import RecordError
from mla_var3.evidence import integrity
from mla_var3.evidence.migrate import observed, record_of
from mla_var3.languages.cutile.facts import CutileFacts

PREDICTION = {
    "device": "nvidia-h200-sxm", "time_us": 990.436, "bound": "compute", "intensity": 1137.069,
    "ridge": 162.529, "tflops_ceiling": 694.0, "gbps_ceiling": 4270.0, "ceiling_kind": "measured",
}  # fmt: skip
DURATION = {"median_us": 3413.26, "min_us": 3374.88, "max_us": 3431.65, "samples": 50}
FACTS = {
    "kernel": "flash_attention", "arch": "sm_90", "hints": {"opt_level": 3},
    "toolchain": {"cuda-tile": "1.7.0"}, "registers": 168, "threads_per_block": 384,
    "instructions": 900, "mma_path": "HGMMA", "mma_note": None, "remarks": [], "lines": [],
    "occupancy": {"blocks_per_sm": 1, "warps": 12, "fraction": 0.1875, "limiter": "registers",
                  "device": "nvidia-h200-sxm"},
}  # fmt: skip

#: As schema 1 wrote a timed run, cut to one of each part.
V1 = {
    "schema_version": 1,
    "kernel": {
        "language": "cutile-dsl", "layer": "mla", "design": "flash_attention", "version": "v0",
        "source_sha256": "d10847e0fc722ef24248f8e3c4e615df7df972d6e30820ffb39f03c4e40ebb64",
    },
    "problem": {"dtype": "bf16", "b": 1, "causal": True},
    "slug": "b1-bf16-causal",
    "mode": "event",
    "target": "nvidia-h200-sxm",
    "device": {
        "key": "nvidia-h200-sxm", "name": "NVIDIA H200", "arch": "sm_90", "driver": "580.159.04",
        "sm_clock_mhz": 1950.0, "memory_clock_mhz": 3201.0, "clocks_locked": None,
    },
    "toolchain": {"torch": "2.11.0", "cuda-tile": "1.7.0"},
    "outcome": {
        "status": "passed",
        "protocol": {"timer": "cuda-events", "warmup_runs": 3, "bench_runs": 50, "l2_flush": True,
                     "graph_replay": True},
        "stages": [
            {
                "name": "flash_attention", "kernel": "flash_attention", "tiling": {"tile_m": 64},
                "grid": [64, 128], "flops": 687362539520, "bytes": 604504064,
                "duration": DURATION, "counters": {}, "static": FACTS,
                "predictions": [PREDICTION],
            }
        ],
        "total": DURATION, "flops": 687362539520, "bytes": 604504064,
        "predictions": [PREDICTION], "roofline_fraction": 0.290173, "artefacts": [],
        "peers": [],
    },
    "run": "3f6c", "git": {"commit": "unknown", "dirty": False},
    "time": "2026-11-21T09:00:00Z",
}  # fmt: skip


def old(**changes):
    return {**copy.deepcopy(V1), **changes}


def run_of(data):
    return evidence.parse(json.dumps(data).encode(), "x.json")


def read(data):
    (record,) = run_of(data).records
    return record


def test_what_was_observed_stays_and_what_followed_from_it_goes():
    made = read(old())
    assert made.key == "nvidia-h200-sxm/cutile/mla/flash_attention/v0/b1-bf16-causal/event"
    assert made.outcome.total.model_dump() == DURATION
    facts = made.outcome.stages[0].static
    assert isinstance(facts, CutileFacts)
    assert (facts.registers, facts.mma_path) == (168, "HGMMA")
    text = run_of(old()).text()
    for gone in ("flops", "bytes", "predictions", "roofline_fraction", "occupancy", "mma_note",
                 "source_sha256", "clocks_locked", "peers"):  # fmt: skip
        assert f'"{gone}"' not in text


def test_a_migrated_record_written_again_is_one_of_today(tmp_path):
    path, _ = evidence.write(read(old()), tmp_path)
    (again,) = evidence.records_of(path)
    assert json.loads(path.read_text())["schema_version"] == 3
    assert again.facts() == read(old()).facts()


def test_it_names_no_sources_and_so_is_stale():
    made = read(old())
    assert made.kernel.sources == {}
    assert evidence.is_stale(made)
    assert "it names no sources" in list(integrity.faults(made))


@pytest.mark.parametrize("dirty", [True, False])
def test_an_unknown_commit_is_null(dirty):
    assert read(old(git={"commit": "unknown", "dirty": dirty})).git is None
    known = {"commit": "a" * 40, "dirty": dirty}
    assert read(old(git=known)).git == evidence.Git(commit="a" * 40, dirty=dirty)


def test_a_record_that_names_no_run_stands_in_one_of_its_own():
    one, other = read(old(run=None)), read(old(run=None, slug="other"))
    assert one.run != other.run
    assert read(old(run=None)).run == one.run


def test_a_failed_run():
    made = read(old(outcome={"status": "failed", "error": "no", "correctness": None}))
    assert made.outcome == evidence.Failed(error="no")


def test_the_data_given_are_not_changed():
    data = old()
    observed(data)
    record_of(data)
    assert data == V1


@pytest.mark.parametrize("surprise", ["kernel", "outcome"])
def test_fields_that_schema_1_did_not_have_are_refused(surprise):
    data = old()
    data[surprise]["surprise"] = 1
    with pytest.raises(RecordError, match=rf"{surprise}.*surprise: Extra"):
        read(data)
