"""The CuTe DSL's tools: what ptxas says, and where it writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from mla_var3.languages.cute import toolchain
from mla_var3.static import tools

TEXT = ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k() {{\n{body} ret;\n}}\n"


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Where ptxas was asked to write."""
    found: list[Path] = []
    run = tools.Runner.run

    def told(self, program, arguments):
        found.append(Path(arguments[-1]))
        return run(self, program, arguments)

    monkeypatch.setattr(tools.Runner, "run", told)
    return found


@pytest.mark.parametrize(("body", "said"), [("", "Used"), ("nothing.like.it;", "error")])
def test_a_file_that_ptxas_refuses_costs_nothing_but_what_is_its_own(
    tmp_path: Path, written: list[Path], body: str, said: str
) -> None:
    """It removes what it was to write: asked for /dev/null by root, that device was gone."""
    ptx = tmp_path / "kernel.ptx"
    ptx.write_text(TEXT.format(body=body))
    assert said in toolchain.ptxas(ptx, "sm_90a")
    assert [path.name for path in written] == ["cubin"]
    assert not written[0].parent.exists()
    assert list(tmp_path.iterdir()) == [ptx]
    toolchain.ptxas(ptx, "sm_90a", tmp_path / "kept")
    assert (tmp_path / "kept").exists() is (said == "Used")
