"""Random PTX against what a GPU made of it, bit for bit; approximations within their error."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from mla_var3.emulator.launcher import launch
from mla_var3.emulator.program import Program
from mla_var3.emulator.ptx import parse

ROOT = Path(__file__).parents[2]
FIXTURE = Path(__file__).parent / "fixtures" / "snippets.npz"
#: Snippets for which the assembler does not make what the PTX ISA says, each with the reason.
KNOWN = FIXTURE.with_name("snippets-that-differ.json")
SPEC = importlib.util.spec_from_file_location(
    "snippets", ROOT / "scripts" / "record-ptx-snippets.py"
)
assert SPEC is not None
assert SPEC.loader is not None
script = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(script)
recorded = pytest.mark.skipif(
    not FIXTURE.is_file(),
    reason="no results of a GPU are recorded (scripts/record-ptx-snippets.py)",
)


def run(text: str, inputs: np.ndarray) -> np.ndarray:
    out = np.zeros((len(inputs), script.LANES), np.uint32)
    launch(text, [inputs, out], 1, script.LANES)
    return out


def test_every_instruction_of_the_script_is_emulated() -> None:
    every = [*script.INTEGER, *script.FLOAT, *script.MIXED, *script.APPROXIMATE]
    names = {"a": "%x0", "b": "%x1", "c": "%x2", "d": "%x3"}
    numbers = {"shift": 3, "shift2": 4, "byte": 5, "imm": 6, "selector": 7}
    for text in every:
        program = Program(parse(script.kernel([text.format(**names, **numbers)])))
        sources = [s.source for s in program.segments.values()]
        assert not any("unsupported" in s for s in sources), text
    rendezvous = Program(parse(script.RENDEZVOUS))
    assert not any("unsupported" in s.source for s in rendezvous.segments.values())


def test_snippets_are_the_same_every_time() -> None:
    assert script.batches(20)[0][0] == script.batches(20)[0][0]
    assert len(script.batches(250)) == 3


@recorded
def test_equal_to_the_gpu() -> None:
    results = np.load(FIXTURE)
    facts = json.loads(str(results["facts"]))
    got = np.concatenate([run(*b) for b in script.batches(facts["count"], facts["seed"])])
    wrong = set(np.flatnonzero((got != results["exact"]).any(1)).tolist())
    assert wrong == {int(n) for n in json.loads(KNOWN.read_text())["snippets"]}


@recorded
def test_approximations_are_near_the_gpu() -> None:
    results = np.load(FIXTURE)["near"]
    for (text, kernel, inputs), expected in zip(script.approximations(), results, strict=True):
        got, want = (x.view(np.float32).astype(float) for x in (run(kernel, inputs), expected))
        error = np.abs(got - want) / np.maximum(np.abs(want), 2.0**-126)
        assert error.max() <= 2 * script.APPROXIMATE[text], text
