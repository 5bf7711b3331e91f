from __future__ import annotations

import ast

from mla_var3.knowledge.references import used
from mla_var3.knowledge.references.model import FOLDER, load
from mla_var3.knowledge.references.usage import by_name
from mla_var3.knowledge.references.used import spelled
from mla_var3.paths import repo_root
from mla_var3.runtime import registry

SOURCE = """
import cuda.tile as ct
from cuda import tile
from cuda.tile import load as read

def kernel(x):
    return ct.store(x, read(x, (0,), (4,)), tile.PaddingMode.ZERO), other.thing, ct
"""


def test_names_of_a_file_are_those_that_it_imports():
    assert used.of_tree(ast.parse(SOURCE), "cuda") == {
        "cuda.tile.store", "cuda.tile.load", "cuda.tile.PaddingMode.ZERO", "cuda.tile",
    }  # fmt: skip


def test_how_many_files_use_a_name(tmp_path):
    for name in ("one.py", "two.py"):
        (tmp_path / name).write_text(SOURCE)
    (tmp_path / "broken.py").write_text("def (")
    assert used.names(tmp_path, "cuda")["cuda.tile.store"] == 2


def test_a_name_is_looked_for_whole_and_without_its_end():
    aliases = {"ct": "cuda.tile", "tune": "cuda.tile.tune"}
    assert spelled("cuda.tile.PaddingMode.ZERO", aliases) == ["ct.PaddingMode.ZERO",
                                                              "ct.PaddingMode"]  # fmt: skip
    assert spelled("cuda.tile.tune.Measurement", aliases) == ["tune.Measurement"]
    assert spelled("torch.sum", aliases) == []


def test_private_names_are_nobodys_business():
    assert used.is_public("cutlass.__version__")
    assert not used.is_public("cutlass._mlir.ir")


def test_versions_use_what_their_sources_write():
    root = repo_root()
    head = load(root / FOLDER / "cutile", root).head
    found = by_name(head, registry.versions())
    version = registry.find("flash_attention", "v0")
    assert version in found["ct.mma"]
    assert all(user.language == "cutile-dsl" for users in found.values() for user in users)
