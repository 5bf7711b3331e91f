"""Designs that drive fetched examples: what import writes and refuses; the committed ones."""

from __future__ import annotations

import ast

import pytest

from mla_var3.errors import KnowledgeError, NotExecutableError, ToolchainError, UsageError
from mla_var3.examples import compile_all, importing, pin, store
from mla_var3.examples.driving import Fetched
from mla_var3.examples.model import Compiled
from mla_var3.paths import kernels_dir, repo_root
from mla_var3.runtime import registry
from tests.examples.conftest import write_pin
from tests.examples.test_catalog import kernel

PATH = "cute/ampere/kernel/scale/scale.py"
GEMM = """
from cutlass.utils import hopper_helpers
class Gemm:
    def __init__(self, acc_dtype, tile_shape_mn, cluster_shape_mn): ...
    def __call__(self, a, b, c, stream): self.mma = make_tiled_tma_atom()
    @cute.kernel
    def kernel(self, a): ...
if __name__ == "__main__": ...
"""
IMPORTED = [v for v in registry.versions() if v.design.startswith("cutlass_")]


@pytest.fixture
def gemm(tree, monkeypatch):
    """An example that a recipe drives, in the fetched tree; compiling it is taken as done."""
    tree.file(PATH).write_text(GEMM)
    monkeypatch.setattr(compile_all, "compile_entries", lambda entries: {
        entry.name: Compiled(toolchain="t", kernels=(kernel(registers=77),)) for entry in entries
    })  # fmt: skip
    return tree


@pytest.fixture
def bring(root, gemm, tmp_path):
    kernels = tmp_path / "kernels"

    def run(path=PATH, design="driven", arch=""):
        return importing.bring(root, kernels, gemm, path, design, arch)[0]

    yield run
    assert not [p for p in kernels.rglob("*") if p.name.startswith(".import")]


def test_a_design_is_a_whole_package(bring, gemm):
    folder = bring()
    files = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
    assert files == {
        "__init__.py", "__main__.py", "devlog.md", "driven/__init__.py", "driven/driven.py",
    }  # fmt: skip
    assert folder.parent.name == "gemm"
    assert (folder.parent / "__init__.py").is_file()
    plan = (folder / "driven/driven.py").read_text()
    ast.parse(plan)
    blob = importing.find(gemm, PATH).blob
    assert f'"{PATH}"' in plan
    assert f'"{blob}"' in plan
    assert 'STAGE = "gemm"' in plan
    assert "example.Gemm(" in plan
    assert "$" not in plan
    devlog = (folder / "devlog.md").read_text()
    assert "### v0: " in devlog
    assert "`nox -s examples -- show ampere-scale`" in devlog
    assert "TMA multi-stage pipeline: [line 5](https://" in devlog


@pytest.mark.parametrize(
    ("change", "error", "sentence"),
    [
        ({"design": "Driven"}, UsageError, "--design=Driven is not a name"),
        ({"design": "class"}, UsageError, "--design=class is not a name"),
        ({"design": "gemm_v2"}, UsageError, "--design=gemm_v2 ends like a version"),
        ({"path": "cute/nothing.py"}, KnowledgeError, r"v1.2.3 has no cute/nothing.py below"),
        ({"arch": "sm_80"}, KnowledgeError, r"scale.py uses TMA .* and not sm_80: older ones have"),
        ({"path": "cute/hopper/kernel/broken/broken.py"}, KnowledgeError,
         "no recipe drives .*broken.py: its host classes are none"),
    ],
)  # fmt: skip
def test_what_import_refuses(bring, tmp_path, change, error, sentence):
    with pytest.raises(error, match=sentence):
        bring(**change)
    assert not (tmp_path / "kernels").exists()


def test_two_imports_of_one_name(bring):
    bring()
    with pytest.raises(UsageError, match="--design=driven is taken by kernels/cute_python/gemm/dr"):
        bring()


def test_an_example_that_does_not_compile(bring, tmp_path, monkeypatch):
    failed = Compiled(toolchain="t", reason="no such instruction")
    monkeypatch.setattr(compile_all, "compile_entries", lambda some: {some[0].name: failed})
    with pytest.raises(ToolchainError, match=r"scale.py does not compile: no such instruction"):
        bring()
    assert not (tmp_path / "kernels").exists()


class TestFetched:
    def test_names_come_with_the_first_use(self, gemm):
        module = Fetched(PATH, importing.find(gemm, PATH).blob)
        gemm.file(PATH).write_text(text := "from neighbour import THREADS\nclass A: ...\n")
        assert "A" not in vars(module)
        with pytest.raises(NotExecutableError, match=r"scale.py of the fetched tree is blob"):
            module.A  # noqa: B018
        again = Fetched(PATH, importing.find(gemm, PATH).blob)
        assert (again.A.__module__, again.THREADS) == (again.__name__, 64)
        assert text == gemm.file(PATH).read_text()
        with pytest.raises(AttributeError, match="has no B"):
            again.B  # noqa: B018

    def test_no_tree(self, root):
        with pytest.raises(NotExecutableError, match=r"scale.py cannot be driven: .* no fetched"):
            Fetched(PATH, "0" * 40).load()

    def test_another_commit(self, root, gemm):
        write_pin(root, "f" * 40, "v9.9.9")
        with pytest.raises(NotExecutableError, match=r"cannot be driven: .*pins v9.9.9"):
            Fetched(PATH, "0" * 40).load()

    def test_a_file_that_vanished(self, gemm):
        gemm.file(PATH).unlink()
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
