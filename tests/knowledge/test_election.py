"""What the page of ``elect_one`` says of an election that part of a warp comes to is reported."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from mla_var3.app import run
from mla_var3.paths import repo_root

SCRIPT = repo_root() / "examples/hopper/tma.py"
PAGE = repo_root() / "knowledge/references/cute/threads.toml"
SAID = "deadlock: warp 0 (1 threads) can never go on: the rest of its warp is elsewhere"
WARP = "if cute.arch.make_warp_uniform(cute.arch.warp_idx()) == 0:"
COPY = "        cute.copy(load, parts[None, block], shared, tma_bar_ptr=full)"


def test_the_page_quotes_the_report() -> None:
    notes = tomllib.loads(PAGE.read_text(encoding="utf-8"))["notes"]
    assert SAID in notes["cute.arch.elect_one"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (COPY, f"        if thread == 0:\n    {COPY}"),
        (COPY, f"        with cute.arch.elect_one():\n    {COPY}"),
        (WARP, "if thread == 0:"),
    ],
    ids=["copy under thread 0", "copy under elect_one", "elect_one under thread 0"],
)
def test_an_election_that_part_of_a_warp_comes_to(before: str, after: str, tmp_path: Path, capsys):
    text = SCRIPT.read_text(encoding="utf-8")
    assert text.count(before) == 1
    (tmp_path / "tma.py").write_text(text.replace(before, after), encoding="utf-8")
    assert run.main([str(tmp_path / "tma.py")]) == 1
    assert SAID in capsys.readouterr().out
