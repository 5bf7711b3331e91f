"""Random PTX against what a GPU made of it, bit for bit; approximations within their error."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from mla_var3.emulator.launcher import launch
from mla_var3.emulator.program import Program
from mla_var3.gpuless.ptx import parse

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


def differing(step: int) -> tuple[set[int], set[int]]:
    """Snippets of every ``step``-th batch that differ from the GPU, and those known to."""
    results = np.load(FIXTURE)
    facts = json.loads(str(results["facts"]))
    wrong, seen, first = set(), set(), 0
    for number, batch in enumerate(script.batches(facts["count"], facts["seed"])):
        last = first + len(batch[1])
        if number % step == 0:
            different = (run(*batch) != results["exact"][first:last]).any(1)
            wrong |= {first + int(n) for n in np.flatnonzero(different)}
            seen |= set(range(first, last))
        first = last
    return wrong, {int(n) for n in json.loads(KNOWN.read_text())["snippets"]} & seen


@pytest.mark.slow
@recorded
def test_a_tenth_is_equal_to_the_gpu() -> None:
    wrong, known = differing(10)
    assert wrong == known


@recorded
@pytest.mark.exhaustive
def test_all_are_equal_to_the_gpu() -> None:
    wrong, known = differing(1)
    assert wrong == known
