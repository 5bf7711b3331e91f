"""The opcode table against the installed cuda-tile, and against ones that differ."""

from __future__ import annotations

import subprocess
import sys

import pytest

from mla_var3.errors import ToolchainError
from mla_var3.interpreter import compat
from mla_var3.interpreter import ops as _ops  # noqa: F401 - its handlers register themselves
from mla_var3.interpreter.handlers import HANDLERS, handler


def test_the_installed_cuda_tile_is_the_pinned_one() -> None:
    assert compat.differences(compat.installed_opcodes()) == []
    compat.check()


def test_every_opcode_has_a_handler() -> None:
    assert len(compat.OPCODES) == 60
    assert HANDLERS.keys() == compat.OPCODES.keys()


def test_an_opcode_has_one_handler() -> None:
    with pytest.raises(ValueError, match="two handlers"):
        handler("tile_mma")(lambda op, lo: None)


def test_differences_are_named() -> None:
    found = dict(compat.OPCODES)
    del found["fma"]
    found["tile_sort"] = (("x",), (), ())
    found["tile_mma"] = (("x", "y", "acc"), ("use_fast_acc", "sparsity"), ())
    found["loop"] = (found["loop"][0], (), ("head", "body"))
    with pytest.raises(ToolchainError) as caught:
        compat.check(found, "1.8.0")
    message = str(caught.value)
    assert "cuda-tile 1.7.0" in message
    assert "cuda-tile 1.8.0 is installed" in message
    assert "opcode 'fma' is gone" in message
    assert "opcode 'tile_sort' is new" in message
    assert "attributes of 'tile_mma' are (use_fast_acc, sparsity), expected (use_fast_acc)" in (
        message
    )
    assert "blocks of 'loop' are (head, body), expected (body)" in message


def test_another_version_is_compared_when_the_package_is_imported(monkeypatch) -> None:
    compat.check_installed()
    monkeypatch.setattr(compat, "installed_opcodes", dict)
    compat.check_installed()
    monkeypatch.setattr(compat.importlib.metadata, "version", lambda _package: "1.8.0")
    with pytest.raises(ToolchainError, match=r"cuda-tile 1\.8\.0 is installed and differs"):
        compat.check_installed()


def test_importing_the_package_loads_neither_torch_nor_cutile() -> None:
    script = "import sys, mla_var3.interpreter; print({'torch', 'cuda'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "set()\n"


def test_the_installed_version_is_named_by_default() -> None:
    with pytest.raises(ToolchainError, match=r"cuda-tile \d+\.\d+"):
        compat.check({})
