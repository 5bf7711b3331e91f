"""Which functions of its sources a version calls."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from mla_var3 import inputs, languages
from mla_var3.errors import PlanError
from mla_var3.runtime import calling, definitions, registry

STEPS = '''"""Steps."""


def far():
    def inner():
        return 3
    return inner()


def unused():
    return far()


class Base:
    near = far()

    def __init__(self):
        self.start()

    def start(self):
        pass

    def go(self):
        return self.stay()

    def stay(self):
        return 1

    def left_out(self):
        return unused()


class Other:
    def go(self):
        return 2
'''
HEAD = '"""Toy."""\n\nfrom mla_var3.kernel.lang.kit.steps import Base, Other\n\n\n'


@pytest.fixture
def called(tmp_path, monkeypatch):
    """Names of functions that a version calls, those of methods with their class."""
    for module in (registry, definitions):
        monkeypatch.setattr(module, "kernels_dir", lambda: tmp_path)

    def of(text: str) -> set[str]:
        path = tmp_path / "lang/mla/toy/toy/toy.py"
        kit = tmp_path / "lang/kit/steps.py"
        for file, source in {path: text, kit: STEPS}.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(source)
        version = registry.Version("lang", "lang", "mla", "toy", "v0", "", path)
        return {_names(file)[line] for file, line in calling.called(version)}

    return of


def _names(file: Path) -> dict[int, str]:
    found = {}
    for node in ast.parse(file.read_text()).body:
        within = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
        for inner in ast.walk(node):
            if isinstance(inner, ast.FunctionDef):
                found[inner.lineno] = within + inner.name
    return found


def test_of_a_class_what_is_called_or_named_by_something_called_counts(called):
    found = called(HEAD + "class Plan:\n    def run(self):\n        return Base().go()\n")
    assert found == {
        "Plan.run", "Base.__init__", "Base.start", "Base.go", "Base.stay", "far", "inner",
    }  # fmt: skip


def test_a_method_that_is_overridden_does_not_count(called):
    kernel = "class Kernel(Base):\n    def go(self):\n        return 4\n\n\n"
    found = called(HEAD + kernel + "class Plan:\n    def run(self):\n        Kernel().go()\n")
    assert "Kernel.go" in found
    assert not found & {"Base.go", "Base.stay", "Base.left_out", "unused"}


@pytest.mark.parametrize("base", ["super()", "Base"])
def test_a_method_of_a_base_that_is_asked_for_counts(called, base):
    own = "" if base == "super()" else "self"
    kernel = f"class Kernel(Base):\n    def go(self):\n        return {base}.go({own})\n\n\n"
    found = called(HEAD + kernel + "class Plan:\n    def run(self):\n        Kernel().go()\n")
    assert {"Kernel.go", "Base.go", "Base.stay"} <= found
    assert "Base.left_out" not in found


def test_of_a_base_that_two_bases_share_the_methods_come_last(called):
    classes = "".join(
        f"class {name}(Base):\n    def {method}(self):\n        return 5\n\n\n"
        for name, method in (("Left", "stay"), ("Right", "go"))
    )
    kernel = "class Kernel(Left, Right):\n    pass\n\n\n"
    found = called(
        HEAD + classes + kernel + "class Plan:\n    def run(self):\n        Kernel().go()\n"
    )
    assert "Right.go" in found
    assert "Base.go" not in found


def test_a_name_of_two_classes_counts_for_both(called):
    found = called(HEAD + "class Plan:\n    def run(self, x=Base, y=Other):\n        y().go()\n")
    assert {"Base.go", "Other.go"} <= found


def test_what_only_an_annotation_names_is_not_called(called):
    found = called(HEAD + "class Plan:\n    def run(self, x: Base) -> Other:\n        return x\n")
    assert found == {"Plan.run"}


def test_a_module_without_a_plan_is_refused(called):
    with pytest.raises(PlanError, match="no Plan"):
        called('"""Toy."""\n')


def test_what_a_version_overrides_and_what_it_only_imports_is_not_called():
    version = registry.find("hopper_attention", "v0")
    softmax = registry.find("flash_mla@cute-dsl", "v0").path.parents[3] / "kit/softmax.py"
    assert softmax in version.source_files()
    lines = {line for file, line in calling.called(version) if file == softmax}
    names = _names(softmax)
    assert "publish_max" not in {names[line] for line in lines}


def test_every_function_with_wrong_kernels_is_called_by_a_version():
    left = set()
    for key in sorted({v.language for v in registry.versions()}):
        versions = [v for v in registry.versions() if v.language == key]
        called = frozenset[calling.Function]().union(*map(calling.called, versions))
        for file in sorted({file for v in versions for file in v.source_files()}):
            mutants = list(languages.find(key).mutants(inputs.read_text(file)))
            left |= {(file.name, one.edit.split(":")[0]) for one in mutants
                     if (file, one.line) not in called}  # fmt: skip
    assert left == set()
