"""A version as one file: what it holds, and that it compiles to the same machine code."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path

import pytest

from mla_var3.errors import PlanError
from mla_var3.runtime import definitions, registry
from mla_var3.runtime.flattening import flatten, flatten_file, is_composed

COMPOSED = [v for v in registry.versions() if is_composed(v.path)]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("version", COMPOSED, ids=lambda v: v.name)
def test_a_flattened_version_needs_nothing_else_below_kernels(version):
    text = flatten(version)
    tree = ast.parse(text)
    assert registry.PACKAGE not in text
    names = [n.name for n in tree.body if isinstance(n, ast.ClassDef | ast.FunctionDef)]
    assert "Plan" in names
    assert len(names) == len(set(names))


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """Writes modules below a kernels folder; gives the path of the version's."""
    for module in (registry, definitions):
        monkeypatch.setattr(module, "kernels_dir", lambda: tmp_path)

    def write(version: str, **kit: str) -> Path:
        path = tmp_path / "lang/mla/toy/toy/toy.py"
        files = {tmp_path / f"lang/kit/{name}.py": text for name, text in kit.items()}
        for file, text in {path: version, **files}.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return path

    return write


def ran(text: str) -> dict:
    names: dict = {}
    exec(compile(text, "flat", "exec"), names)
    return names


STEPS = '''"""Steps."""


#: How far.
FAR = 3


class Base:
    """A base."""

    near = 1

    def go(self, way):
        return [*way, FAR]

    def stay(self):
        return self.near


class Unused:
    pass
'''


def test_a_class_takes_in_its_bases_and_keeps_what_it_calls_by_super(toy):
    version = '''"""Toy."""

from mla_var3.kernel.lang.kit.steps import Base


class Plan(Base):
    """A plan."""

    near = 2

    def go(self, way):
        return super().go([*way, 0])
'''
    text = flatten_file(toy(version, steps=STEPS))
    plan = ran(text)["Plan"]()
    assert plan.go([7]) == [7, 0, 3]
    assert plan.stay() == 2
    assert plan.__class__.__mro__[1] is object
    assert "Unused" not in text
    assert "#: How far.\nFAR = 3" in text


def test_a_base_that_is_called_by_its_name_stays_a_base(toy):
    version = '''"""Toy."""

from mla_var3.kernel.lang.kit.steps import Base


class Plan(Base):
    def go(self, way):
        return Base.go(self, [*way, 0])
'''
    names = ran(flatten_file(toy(version, steps=STEPS)))
    assert names["Plan"]().go([]) == [0, 3]
    assert issubclass(names["Plan"], names["Base"])


def test_of_two_definitions_of_one_name_the_later_names_its_module(toy):
    version = '''"""Toy."""

from mla_var3.kernel.lang.kit.steps import FAR as LIMIT
from mla_var3.kernel.lang.kit.other import far


class Plan:
    found = (LIMIT, far())
'''
    other = '"""Other."""\n\nFAR = 5\n\n\ndef far():\n    return FAR\n'
    text = flatten_file(toy(version, steps=STEPS, other=other))
    assert "FAR_of_other = 5" in text


def test_names_that_take_each_other_s_place_are_told_apart(toy):
    version = '''"""Toy."""

from mla_var3.kernel.lang.kit.both import both


class Plan:
    found = both()
'''
    first = '"""First."""\n\n\ndef far():\n    return 5\n'
    both = '''"""Both."""

from mla_var3.kernel.lang.kit.first import far as far_of


def far():
    return 3


def both():
    return far_of(), far(), far_of()
'''
    assert ran(flatten_file(toy(version, first=first, both=both)))["Plan"].found == (5, 3, 5)


@pytest.mark.parametrize("text", ['"""Toy."""\n', "def x(:\n"])
def test_a_module_without_a_plan_is_refused(toy, text):
    with pytest.raises(PlanError):
        flatten_file(toy(text))


@pytest.mark.parametrize(
    ("design", "version", "problem"),
    [
        ("hopper_attention", "v3", {"s": 128, "t": 128}),
        pytest.param(
            *("flash_mla", "v12", {"b": 2, "h": 128, "s": 1, "t": 4096, "parts": 1}),
            marks=pytest.mark.exhaustive,
        ),
    ],
)
def test_a_flattened_version_compiles_to_the_same_machine_code(design, version, problem, tmp_path):
    pytest.importorskip("cutlass", reason="needs nvidia-cutlass-dsl")
    from mla_var3.devices import default_for_arch
    from mla_var3.languages.cute.compile import CUBIN, compile_host
    from mla_var3.static.elf import code_digest

    version = registry.find(design, version, "cute-dsl")
    (tmp_path / "flat.py").write_text(flatten(version))
    spec = importlib.util.spec_from_file_location("flat", tmp_path / "flat.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["flat"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    codes = []
    for plan_class in (version.plan_class(), module.Plan):
        plan = plan_class(**problem)
        plan = plan.resolve(default_for_arch("sm_90").machine(plan.dtype))
        ((_, kernel),) = plan.plan(*plan.prepare_inputs("meta")).stages()
        codes.append(code_digest(compile_host(*kernel.host(), "sm_90").files[CUBIN]))
    assert codes[0] == codes[1]
