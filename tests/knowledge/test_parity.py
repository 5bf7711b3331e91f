"""The ring by hand: right as it stands, and what its page says of two mistakes is reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from mla_var3.app import run
from mla_var3.paths import repo_root

SCRIPT = repo_root() / "examples/api/cute/parity.py"
PAGE = repo_root() / "knowledge/languages/cute-dsl/anti-patterns/cute-wrong-phase.md"
FLIP = "stage, parity = cutlass.Int32(0), parity ^ 1"


def _reported(said: str, text: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """That a script ends with wrong values, and with a report that the page quotes."""
    assert text != SCRIPT.read_text(encoding="utf-8")
    (folder / "parity.py").write_text(text, encoding="utf-8")
    with pytest.raises(AssertionError):  # The script's own, of its values.
        run.main([str(folder / "parity.py")])
    assert f"deadlock: {said}" in capsys.readouterr().out
    assert f'quoted: "{said}"' in PAGE.read_text(encoding="utf-8")


def test_the_ring_as_it_stands(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main([str(SCRIPT)]) == 0
    assert "0 findings" in capsys.readouterr().out


def test_a_producer_that_begins_with_parity_0(tmp_path: Path, capsys) -> None:
    said = (
        "warp 0 (32 threads) can never go on: mbarrier at shared 0x410, parity 0 wanted; phase 0, "
        "which lacks its 32 arrivals"
    )
    text = SCRIPT.read_text(encoding="utf-8").replace("Int32(1)  # Passes", "Int32(0)  # Passes")
    _reported(said, text, tmp_path, capsys)


def test_a_consumer_that_never_flips_its_parity(tmp_path: Path, capsys) -> None:
    said = (
        "warp 1 (32 threads) can never go on: mbarrier at shared 0x400, parity 0 wanted; phase 2, "
        "which lacks its 32 arrivals"
    )
    head, _, tail = SCRIPT.read_text(encoding="utf-8").rpartition(FLIP)
    _reported(said, f"{head}stage = cutlass.Int32(0){tail}", tmp_path, capsys)
