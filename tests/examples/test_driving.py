"""Designs that drive fetched examples in place: without the tree, of another file, committed."""

from __future__ import annotations

import ast

import pytest

from mla_var3.errors import NotExecutableError
from mla_var3.examples import pin, store
from mla_var3.examples.catalog import find
from mla_var3.examples.driving import Fetched
from mla_var3.paths import kernels_dir, repo_root
from mla_var3.runtime import registry
from tests.examples.conftest import write_pin

PATH = "cute/ampere/kernel/scale/scale.py"
IMPORTED = [v for v in registry.versions() if v.design.startswith("cutlass_")]


class TestFetched:
    def test_names_come_with_the_first_use(self, tree):
        module = Fetched(PATH, find(tree, PATH).blob)
        tree.file(PATH).write_text(text := "from neighbour import THREADS\nclass A: ...\n")
        assert "A" not in vars(module)
        with pytest.raises(NotExecutableError, match=r"scale.py of the fetched tree is blob"):
            module.A  # noqa: B018
        again = Fetched(PATH, find(tree, PATH).blob)
        assert (again.A.__module__, again.THREADS) == (again.__name__, 64)
        assert text == tree.file(PATH).read_text()
        with pytest.raises(AttributeError, match="has no B"):
            again.B  # noqa: B018

    def test_no_tree(self, root):
        with pytest.raises(NotExecutableError, match=r"scale.py cannot be driven: .* no fetched"):
            Fetched(PATH, "0" * 40).load()

    def test_another_commit(self, root, tree):
        write_pin(root, "f" * 40, "v9.9.9")
        with pytest.raises(NotExecutableError, match=r"cannot be driven: .*pins v9.9.9"):
            Fetched(PATH, "0" * 40).load()

    def test_a_file_that_vanished(self, tree):
        tree.file(PATH).unlink()
        with pytest.raises(NotExecutableError, match=r"scale.py vanished from the fetched tree"):
            Fetched(PATH, "0" * 40).load()


@pytest.mark.parametrize("version", IMPORTED, ids=lambda v: v.name)
class TestCommitted:
    def test_it_plans_without_the_tree(self, version, tmp_path, monkeypatch):
        pytest.importorskip("cutlass", reason="needs nvidia-cutlass-dsl")
        plan = version.plan_class()()
        plan.validate()
        kernel = plan.plan(*plan.prepare_inputs("meta"))
        assert set(kernel.output_tensors) == set(_outputs(plan))
        for tiling in plan._autotune_configs()[kernel.name]:
            tiling.validate(plan)
        assert plan.check_plans()

    def test_it_is_of_the_indexed_file(self, version):
        texts = [node.value for node in ast.walk(ast.parse(version.path.read_text()))
                 if isinstance(node, ast.Constant)]  # fmt: skip
        known = {one.path: one.blob for one in store.read(repo_root()).values()}
        (path,) = [x for x in texts if isinstance(x, str) and f"{pin.EXAMPLES}/{x}" in known]
        assert known[f"{pin.EXAMPLES}/{path}"] in texts


def _outputs(plan):
    small = plan.check_plans()[0]
    return small.reference_fn(*small.prepare_inputs("cpu"))


def test_imports_of_all_three_workloads_are_committed():
    assert {v.layer for v in IMPORTED} == {"gemm", "attention", "mla"}
    assert kernels_dir().is_dir()
