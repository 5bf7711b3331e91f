"""The page on serialized wgmma: its lines of the DSL are serialized, or not, as it says."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest

from mla_var3.app import run
from mla_var3.paths import repo_root

ROOT = repo_root()
PAGE = (ROOT / "docs/messages/wgmma-serialized.md").read_text(encoding="utf-8")
PRODUCT = (ROOT / "examples/cute_sync/product.py").read_text(encoding="utf-8")
SAID = "serialized wgmma: the assembler waits 4 times for 4 multiplications"
WAIT = "        warpgroup.wait_group(0)\n"


def _compiled(text: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What a run prints of a script; its own assertion, of its values, is of no interest."""
    assert text != PRODUCT
    (folder / "product.py").write_text(text, encoding="utf-8")
    with contextlib.suppress(AssertionError):
        run.main(["--arch=sm_90", str(folder / "product.py")])
    return capsys.readouterr().out


@pytest.mark.parametrize(("open_groups", "serialized"), [(0, False), (1, True)])
def test_a_rescale_behind_a_wait(
    open_groups: int, serialized: bool, tmp_path: Path, capsys
) -> None:
    fence = re.search(r"^``` \{ \.python \}\n(.+?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert fence is not None
    _, wait, *rescale = [line.split("  #")[0].rstrip() for line in fence[1].splitlines()]
    assert wait in WAIT
    lines = [wait.replace("0", str(open_groups)), *rescale]
    text = PRODUCT.replace(WAIT, "".join(f"        {line}\n" for line in lines))
    assert (SAID in _compiled(text, tmp_path, capsys)) == serialized
    assert SAID in PAGE


def test_a_loop_that_is_not_unrolled_is_no_cause(tmp_path: Path, capsys) -> None:
    loop = ("range_constexpr(MMA_STEPS)", "cutlass.range(MMA_STEPS, unroll=1)")
    assert "serialized" not in _compiled(PRODUCT.replace(*loop), tmp_path, capsys)


@pytest.mark.parametrize(
    ("line", "kinds"),
    [("fence", ["missing-wgmma-fence"]), ("commit_group", ["pending-accumulator", "race"])],
)
def test_what_is_left_out_is_reported(line: str, kinds: list[str], tmp_path: Path, capsys) -> None:
    printed = _compiled(PRODUCT.replace(f"        warpgroup.{line}()\n", ""), tmp_path, capsys)
    assert "serialized" not in printed
    assert all(f"{kind}: " in printed and f"`{kind}`" in PAGE for kind in kinds)
