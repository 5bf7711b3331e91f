from __future__ import annotations

import cuda.tile as ct
import pytest

from mla_var3.interpreter import compat
from mla_var3.knowledge.references.model import FOLDER, load
from mla_var3.languages.cutile import api
from mla_var3.paths import repo_root

REFERENCE = load(repo_root() / FOLDER / "cutile", repo_root())


def test_every_public_name_is_read():
    found = api.names()
    assert {f"ct.{name}" for name in ct.__all__} - found.keys() == {"ct.compilation", "ct.tune"}
    assert found["ct.PaddingMode"].kind == "enum"
    assert found["ct.load"].signature.startswith("(array, /, index, shape, *, order='C'")
    assert found["ct.Constant"].kind == found["ct.float32"].kind == "value"
    assert "ct.TiledView.load" in found


@pytest.mark.parametrize("name", ["sum", "gather", "bitwise_and", "store", "bid", "mma", "matmul"])
def test_what_is_written_of_an_operation_is_what_the_front_end_does(name: str) -> None:
    seen = api.observe([name])[name]
    written = REFERENCE.installed.names[f"ct.{name}"]
    assert (seen.dtypes, seen.lowers) == (written.dtypes, written.lowers)
    assert seen.dtypes


def test_products_take_tf32_of_which_there_are_no_arrays():
    assert "tf32" in REFERENCE.installed.names["ct.mma"].dtypes
    assert "tf32" not in REFERENCE.installed.names["ct.sum"].dtypes


def test_integers_alone_have_bits():
    taken = REFERENCE.installed.names["ct.bitwise_and"].dtypes
    assert "i32" in taken
    assert "f32" not in taken


def test_what_an_operation_becomes_are_opcodes_of_the_typed_ir():
    opcodes = {
        opcode.partition("(")[0]
        for name in REFERENCE.installed.names.values()
        for opcode in name.lowers
    }
    assert opcodes <= compat.OPCODES.keys()
    assert {key.partition("(")[0] for key in REFERENCE.head.checks} <= opcodes


def test_findings_of_an_operation_are_those_of_the_interpreter():
    page = (repo_root() / "docs/interpreter.md").read_text()
    for kinds in REFERENCE.head.checks.values():
        assert all(f"`{kind}`" in page for kind in kinds)
