"""What is said of small kernels and of their mistakes, word for word.

A report is what a reader has of a fault, and counts are what a reader has of a right kernel: each
name, number and line in them is held. After a change that is meant, look at the difference:
``python -m tests.emulator.test_reports`` writes the file again, with a word behind it the cases
whose names have that.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mla_var3.emulator.clusters import Launch
from mla_var3.emulator.diagnostics import Reporter
from mla_var3.emulator.options import DEFAULT, STRICT, Options
from mla_var3.emulator.replay import Replay
from mla_var3.errors import EmulatorError
from tests.emulator import events, kernels, tcgen05
from tests.emulator.events import Snippet
from tests.emulator.mutants import MUTANTS

FILE = Path(__file__).parent / "fixtures" / "reports.json"
SNIPPETS = {
    name: value
    for module in (events, tcgen05)
    for name, value in sorted(vars(module).items())
    if isinstance(value, Snippet)
}
Case = Callable[[Options], tuple[Any, Launch]]


#: What one reads past an array's end decides what is reported of it.
AS_IT_HAPPENS = {"product: A past its end"}


def cases() -> Iterator[tuple[str, Case]]:
    """Kernels as they are, and each with one line or step changed, by name."""
    for name, kernel in kernels.ALL.items():
        yield name, lambda o, k=kernel: k.run({}, o)
    for m in MUTANTS:
        if f"{m.kernel}: {m.name}" not in AS_IT_HAPPENS:
            yield f"{m.kernel}: {m.name}", lambda o, m=m: kernels.ALL[m.kernel].run(m.edits, o)
    for name, snippet in SNIPPETS.items():
        yield name, lambda o, s=snippet: s.run({}, o)
        for step in snippet.steps:
            # Without these a loop has no end, or a label is missing.
            if ":" not in snippet.steps[step]:
                yield f"{name}: no {step}", lambda o, s=snippet, t=step: s.run({t: ""}, o)


def told(name: str, case: Case, options: Options) -> Any:
    """Everything that a run says."""
    try:
        values, done = case(options)
    except EmulatorError as error:
        return {"refused": _placeless(str(error))}
    if isinstance(values, list):
        values = hashlib.sha256(b"".join(np.ascontiguousarray(v).tobytes() for v in values))
        values = values.hexdigest()[:16]
    reports = [_placeless(str(d)) for d in done.diagnostics]
    said: dict[str, Any] = {"values": values, "reports": reports}
    if any(report.startswith(("uninitialized-read", "out-of-bounds")) for report in reports):
        del said["values"]  # What nothing wrote, or what lies beside an array, is as it happens.
    if ":" not in name:
        said["counts"] = counts(done)
    return said


def _placeless(text: str) -> str:
    """Without the addresses at which arrays happen to lie, and what is said of them."""
    text = re.sub(r"(?m)^(out-of-bounds: global \w+ of \d+ bytes at) .*$", r"\1 ...", text)
    return re.sub(r"0x[0-9a-f]{8,}|\b\d{7,} bytes", "...", text)


def counts(done: Launch) -> Any:
    """The counts of a launch, in all and by line."""
    lines = {
        # Sectors go by where an array happens to lie.
        str(line): {k: v for k, v in vars(c).items() if v and "sectors" not in k}
        for (_, line), c in sorted(done.counts.lines().items())
    }
    return json.loads(json.dumps({"flops": done.counts.total_flops, "lines": lines}, default=dict))


def steps(done: Launch) -> list[str]:
    """What stands in a timeline."""
    assert done.timeline is not None
    site = Reporter(done.counts.program.kernel, "", "").site
    return [
        f"{e['name']} {e.get('tid')} {e.get('ts')} {e.get('dur')}"
        for e in json.loads(done.timeline.chrome(site))["traceEvents"]
        if e["ph"] == "X"
    ]


def played(done: Launch) -> list[str]:
    """The same on a clock: what each warp and each unit does, from when to when."""
    assert done.trace is not None
    spans: dict[str, list[str]] = {}
    for s in Replay(done.trace, done.counts.program.kernel.instructions).spans:
        line = f"{s.what} {s.start:g} to {s.end:g} at {s.pc}"
        spans.setdefault(f"CTA {s.cta} warp {s.warp}", []).append(line)
    return [f"{who}: {', '.join(sorted(lines))}" for who, lines in sorted(spans.items())]


TIMED = {**kernels.ALL, **SNIPPETS}


def everything(word: str = "") -> dict[str, Any]:
    """What stands in the file, of cases whose names have a word."""
    found = {}
    for (name, case), model in itertools.product(cases(), (DEFAULT, STRICT)):
        if word in name:
            options = Options(model=model, counting="full")
            found[f"{name} {model is STRICT}"] = told(name, case, options)
    for name, kernel in TIMED.items():
        if word in f"{name}, timeline":
            done = kernel.run({}, Options(timeline=True, seed=2))[1]
            found[f"{name}, timeline"] = steps(done)
            found[f"{name}, clock"] = played(done)
    return found


KEPT: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.is_file() else {}


@pytest.mark.parametrize("model", [DEFAULT, STRICT], ids=["default", "strict"])
@pytest.mark.parametrize(("name", "case"), [pytest.param(*c, id=c[0]) for c in cases()])
def test_each_word_of_what_is_said(name: str, case: Case, model: Any) -> None:
    key = f"{name} {model is STRICT}"
    assert told(name, case, Options(model=model, counting="full")) == KEPT[key]


@pytest.mark.parametrize("name", list(TIMED))
def test_each_step_of_a_timeline(name: str) -> None:
    options = Options(timeline=True, seed=2)
    done = TIMED[name].run({}, options)[1]
    assert steps(done) == KEPT[f"{name}, timeline"]
    assert played(done) == KEPT[f"{name}, clock"]


if __name__ == "__main__":
    words = sys.argv[1:]
    made = (
        everything()
        if not words
        else KEPT | {k: v for w in words for k, v in everything(w).items()}
    )
    text = json.dumps(made, indent=0, ensure_ascii=False)
    FILE.write_text(text + "\n", encoding="utf-8")


@pytest.mark.parametrize(("length", "shown"), [(79, 79), (80, 80), (81, 80), (200, 80)])
def test_a_long_instruction_is_shown_in_80_characters(length: int, shown: int) -> None:
    from mla_var3.emulator.diagnostics import Reporter
    from mla_var3.gpuless.ptx import Instruction, Kernel

    text = "x" * length
    kernel = Kernel("k", instructions=[Instruction(0, "x", (), None, False, None, text)])
    said = Reporter(kernel, "", "default").site(0).instruction
    assert len(said) == shown
    assert said == text if length < 80 else said == text[:77] + "..."
