"""A mutant that changes nothing which lives would pass for one that no test notices."""

from functools import partial
from pathlib import Path

import numpy as np

from mla_var3 import forked
from mla_var3.emulator import functions, sync
from mla_var3.interpreter.ops import arithmetic

from .mutants import Module
from .running import PACKAGE, Reached


def applied(modules: list[Module]) -> dict[str, int]:
    return {m.key: module.apply(m) for module in modules for m in module.mutants()[::40]}


def test_every_mutant_changes_what_lives(tmp_path: Path) -> None:
    paths = [Path(str(loaded.__file__)) for loaded in (functions, sync, arithmetic)]
    modules = [Module(path, path.relative_to(PACKAGE).as_posix()) for path in paths]
    work = {"all": partial(applied, modules)}  # In one process: it looks for what lives once.
    ((_, one),) = forked.run(work, folder=tmp_path, workers=1, timeout=120, explain=str)
    assert one.failure is None, one.failure
    assert len({key.split()[0] for key in one.result}) == len(modules)
    assert [key for key, changed in one.result.items() if not changed] == []


def test_a_mutant_does_what_it_says(tmp_path: Path) -> None:
    path = Path(str(functions.__file__))
    module = Module(path, "emulator/functions.py")
    [mutant] = [
        m for m in module.mutants() if m.where == "extract" and m.change.startswith("width == 64")
    ]

    def extracted(mutated: bool) -> list[int]:
        if mutated:
            module.apply(mutant)
        given = (np.array([0xFF << 40], "u8"), np.array([40], "u4"), np.array([8], "u4"))
        return functions.extract(*given, 64, False).tolist()

    work = {mutated: partial(extracted, mutated) for mutated in (False, True)}
    ended = dict(forked.run(work, folder=tmp_path, workers=1, timeout=60, explain=str))
    assert ended[False].result == [0xFF]
    # Its mask has 64 bits still, and its words have 32.
    assert "out of bounds for uint32" in str(ended[True].failure)


def test_whoever_uses_what_is_kept_reaches_it() -> None:
    """Results are kept from one test to the next: the first alone is seen to reach the function."""
    path = PACKAGE / "emulator/units/layouts.py"
    module = Module(path, "emulator/units/layouts.py")
    assert (module.kept("pieces"), module.kept("=SWIZZLE")) == ("pieces", "SWIZZLE")
    assert module.kept("swizzled") is module.kept("Descriptor.of") is None
    source = path.read_text(encoding="utf-8").splitlines()
    assert ["pieces(" in source[line - 1] for line in module.readers("pieces")] == [True]
    descriptors = Module(path.with_name("tcgen05") / "descriptors.py", "")
    assert descriptors.kept("Matrix.of") == "Matrix.of"
    operands = path.with_name("tcgen05") / "operands.py"
    (line,) = Module(operands, "").readers("Matrix.of")
    assert "Matrix.of(word)" in operands.read_text(encoding="utf-8").splitlines()[line - 1]


def test_tests_of_the_same_name_come_first() -> None:
    (mutant, *_) = Module(Path(str(sync.__file__)), "emulator/sync.py").mutants()
    names = ["tests/a/test_sync.py::t[1]", "tests/a/test_sync.py::t[2]", "tests/a/test_b.py::u"]
    reached = Reached(
        dict(zip(names, (3.0, 2.0, 1.0), strict=True)), {mutant.file: {mutant.line: names}}
    )
    assert reached.of(mutant) == [names[1], names[0], names[2]]
    elsewhere = Reached(reached.seconds, {"other.py": {7: names[2:]}})
    assert elsewhere.of(mutant) == []
    assert elsewhere.of(mutant, [("other.py", 7)]) == names[2:]


def test_one_case_of_each_test_takes_turns_with_those_that_reach_least() -> None:
    (mutant, *_) = Module(Path(str(sync.__file__)), "emulator/sync.py").mutants()
    wide = [f"tests/a.py::wide[{i}]" for i in range(3)]
    other, narrow = "tests/a.py::other", "tests/b.py::narrow"
    seconds = dict(zip([*wide, other, narrow], (1.0, 2.0, 3.0, 4.0, 5.0), strict=True))
    everywhere = {1: wide, 2: [*wide, other], mutant.line: [*wide, other, narrow]}
    reached = Reached(seconds, {mutant.file: everywhere})
    assert reached.of(mutant) == [wide[0], narrow, other, wide[1], wide[2]]
