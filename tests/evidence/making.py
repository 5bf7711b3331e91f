"""Records of versions that need not exist, and strategies that draw their parts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from mla_var3 import evidence
from mla_var3.evidence import renames, runs
from mla_var3.languages.cutile.facts import CutileFacts
from mla_var3.paths import kernels_dir
from tests.factories import COMMIT, correctness, device, protocol, record_of, stage

__all__ = [
    "CASES", "COMMIT", "NAMES", "OUTCOMES", "SCALARS", "SOURCE", "content", "correctness",
    "duration", "facts", "identity", "passed", "place_of", "protocol", "put", "record", "stage",
    "timed", "timed_record",
]  # fmt: skip

#: A source that is there today.
SOURCE = kernels_dir() / "cutile/mla/flash_mla/flash_mla/flash_mla.py"
SOURCES = evidence.identify([SOURCE])
#: The design of the records that are made here.
DESIGN = ("cutile-dsl", "flash_mla")


def duration(median: float = 10.0, samples: int = 50, **changes: Any) -> evidence.Duration:
    fields = {"median_us": median, "min_us": median * 0.9, "max_us": median * 1.2}
    return evidence.Duration(**{**fields, "samples": samples, **changes})


def facts(**changes: Any) -> CutileFacts:
    fields = {
        "kernel": "flash_mla", "arch": "sm_90", "registers": 168, "threads_per_block": 384,
        "instructions": 900, "mma_path": "HGMMA", "spill_loads": 3,
    }  # fmt: skip
    return CutileFacts(**{**fields, **changes})


def passed(**changes: Any) -> evidence.Passed:
    fields = {"stages": [stage()], "correctness": correctness()}
    return evidence.Passed(**{**fields, **changes})


def timed(median: float = 10.0, **changes: Any) -> evidence.Passed:
    return passed(total=duration(median), protocol=protocol(), **changes)


def identity(**changes: Any) -> evidence.KernelIdentity:
    fields = {
        "language": "cutile-dsl", "package": "cutile", "layer": "mla", "design": "flash_mla",
        "version": "v0", "sources": SOURCES,
    }  # fmt: skip
    return evidence.KernelIdentity(**{**fields, **changes})


def record(
    outcome: evidence.Outcome | None = None, kernel: dict[str, Any] | None = None, **changes: Any
) -> evidence.Record:
    """A static record."""
    outcome = outcome or passed(stages=[stage(static=facts())])
    return record_of(**{"kernel": identity(**(kernel or {})), "outcome": outcome, **changes})


def timed_record(median: float = 10.0, **changes: Any) -> evidence.Record:
    """A record of times on an H200."""
    fields = {
        "mode": "event", "target": "nvidia-h200-sxm", "device": device(),
        "outcome": timed(median),
    }  # fmt: skip
    return record(**{**fields, **changes})


def content(made: evidence.Record) -> dict[str, Any]:
    """What a file says that holds the record alone."""
    return json.loads(runs.started(made).text())  # type: ignore[no-any-return]


def place_of(made: evidence.Record) -> Path:
    """Where a file that begins with the record lies."""
    run = runs.started(made)
    return Path(run.folder) / f"{run.stem}.json"


def put(root: Path, said: dict[str, Any], place: Path) -> Path:
    """A file that says something, whatever belongs at that place."""
    path = root / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(said))
    return path


NAMES = st.text("abcdefghijklmnopqrstuvwxyz-_0123456789", min_size=1, max_size=12)
#: Names of stages and kernels that reading a record leaves as they are.
TODAYS = NAMES.filter(
    lambda name: renames.stage(DESIGN, name) == name == renames.kernel(DESIGN, name)
)
TIMES = st.floats(0.01, 1e9)
SCALARS = st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(max_size=8)

DURATIONS = st.tuples(TIMES, TIMES, TIMES).map(sorted).flatmap(
    lambda t: st.builds(
        evidence.Duration, min_us=st.just(t[0]), median_us=st.just(t[1]), max_us=st.just(t[2]),
        samples=st.integers(1, 10**6),
    )
)  # fmt: skip
FACTS = st.builds(
    facts, registers=st.integers(0, 255), spill_loads=st.integers(0, 99),
    instruction_mix=st.dictionaries(NAMES, st.integers(0, 999), max_size=3),
    hints=st.dictionaries(NAMES, st.integers(0, 9), max_size=2),
    error=st.none() | NAMES,
)  # fmt: skip


def stages(timed: bool) -> st.SearchStrategy[evidence.Stage]:
    return st.builds(
        evidence.Stage, name=TODAYS, kernel=TODAYS,
        tiling=st.dictionaries(NAMES, SCALARS, max_size=3),
        grid=st.lists(st.integers(1, 2**31 - 1), max_size=3),
        duration=st.none() | DURATIONS if timed else st.none(),
        counters=st.dictionaries(
            NAMES, st.floats(allow_nan=False, allow_infinity=False), max_size=3
        ),
        static=st.none() | FACTS,
    )  # fmt: skip


CASES = st.builds(
    evidence.CheckedCase, problem=st.dictionaries(NAMES, SCALARS, max_size=3),
    max_relative_error=st.none() | st.floats(0, 1), mma_flops=st.none() | st.integers(0, 10**15),
)  # fmt: skip
CHECKED = st.builds(
    evidence.Correctness, status=st.sampled_from(["passed", "failed"]), against=NAMES,
    tolerance=st.floats(1e-6, 1), cases=st.lists(CASES, min_size=1, max_size=3),
    message=st.none() | NAMES,
)  # fmt: skip


def _passed(timed: bool) -> st.SearchStrategy[evidence.Passed]:
    return st.builds(
        evidence.Passed, correctness=st.none() | CHECKED,
        protocol=st.just(protocol()) if timed else st.none(),
        total=DURATIONS if timed else st.none(),
        stages=st.lists(stages(timed), min_size=1, max_size=3),
        artefacts=st.lists(NAMES, max_size=2),
    )  # fmt: skip


OUTCOMES = st.one_of(
    _passed(True),
    _passed(False),
    st.builds(evidence.Failed, error=NAMES, stage=st.none() | TODAYS),
    st.builds(evidence.Skipped, reason=NAMES),
)
