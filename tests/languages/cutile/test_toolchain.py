from __future__ import annotations

import importlib.metadata

import pytest

from mla_var3.errors import ToolchainError, UnknownNameError
from mla_var3.languages.cutile import toolchain
from mla_var3.static import tools
from tests.static.packages import pretend


@pytest.fixture
def fresh(monkeypatch):
    """Forget what was found, before and after."""
    cached = (
        toolchain.find, toolchain.known_archs, toolchain.bytecode_version, tools.locate,
        tools.disassembler,
    )  # fmt: skip
    for function in cached:
        function.cache_clear()
    yield monkeypatch
    for function in cached:
        function.cache_clear()


def test_tools_come_from_packages_and_not_from_path(fresh):
    fresh.setenv("PATH", "/nonexistent")
    for name, package in toolchain.PACKAGES.items():
        tool = toolchain.find(name)
        assert tool.path.is_file()
        assert "nvidia" in tool.path.parts
        assert tool.version == importlib.metadata.version(package)


def test_the_archs_are_those_the_tool_lists():
    archs = toolchain.known_archs()
    assert {"sm_80", "sm_90", "sm_100", "sm_120"} <= set(archs)
    assert len(set(archs)) == len(archs)
    assert toolchain.require_arch("sm_90") == "sm_90"
    with pytest.raises(UnknownNameError, match=r"unknown arch 'sm_91'.*did you mean 'sm_90'"):
        toolchain.require_arch("sm_91")


def test_newest_common_bytecode_version():
    assert toolchain.bytecode_version() == "13.4"
    assert toolchain.versions()["bytecode"] == "13.4"
    assert set(toolchain.PACKAGES) < set(toolchain.versions())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"nvidia-cuda-tileiras": "13.5.1"}, "checked against release 13.4"),
        ({"nvidia-nvvm": "13.2.0"}, "nvidia-nvvm 13.2.0 .* different releases"),
        ({"nvidia-cuda-nvcc": None}, "nvidia-cuda-nvcc is not installed"),
    ],
)
def test_missing_and_wrong_versions_are_one_sentence(fresh, changes, said):
    pretend(fresh, changes)
    with pytest.raises(ToolchainError, match=said) as caught:
        toolchain.find("tileiras")
    assert "\n" not in str(caught.value)


def test_an_unknown_tool(fresh):
    with pytest.raises(UnknownNameError, match="unknown tool 'ptxas'"):
        toolchain.find("ptxas")


def test_changed_help_text_and_no_common_bytecode(fresh):
    fresh.setattr(tools, "run", lambda *_a, **_k: "12.0\n")
    with pytest.raises(ToolchainError, match="lists no arch"):
        toolchain.known_archs()
    with pytest.raises(ToolchainError, match="no version in common"):
        toolchain.bytecode_version()
