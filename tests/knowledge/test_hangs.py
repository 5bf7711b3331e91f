"""The page on kernels that hang: each mistake that it names is made, and reported in its words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mla_var3.app import run
from mla_var3.paths import repo_root

ROOT = repo_root()
PAGE = (ROOT / "docs/messages/kernel-hangs.md").read_text(encoding="utf-8")
TABLE = PAGE.partition("## Three mistakes")[2].partition("```")[0]
ROWS = re.findall(r"^\| `(.+?)`.*? \| `(.+?)` \| \*(.+?)\*", TABLE, re.MULTILINE)
SCRIPTS = ("examples/api/cute/parity.py", "examples/hopper/specialize.py")


def test_the_table_has_three_mistakes() -> None:
    assert len(ROWS) == 3
    assert all(f"]({'../../'}{name})" in PAGE for name in SCRIPTS)


@pytest.mark.parametrize(("right", "wrong", "said"), ROWS)
def test_a_mistake_is_reported_as_the_page_says(
    right: str, wrong: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = next(name for name in SCRIPTS if right in (ROOT / name).read_text())
    text = (ROOT / name).read_text(encoding="utf-8")
    script = tmp_path / Path(name).name
    script.write_text(text.replace(right, wrong, 1), encoding="utf-8")
    try:
        code = run.main([str(script)])
    except AssertionError:  # The script's own, of its values.
        code = 1
    printed = capsys.readouterr().out
    assert code == 1
    assert said in printed
    if "\ndeadlock: warp 0 (32" in PAGE and "Int32(0)" in wrong:
        block = PAGE.partition("```text\n")[2].partition("```")[0].strip().splitlines()
        for line in block:
            assert line.replace("parity.py", str(script)) in printed, line


@pytest.mark.parametrize("kind", ["hangs", "right"])
def test_sync_threads_of_the_consumers_hangs_and_a_named_barrier_does_not(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line, said = re.findall(rf"^\| {kind} \| `(.+?)` \| \*?(.+?)\*? \|$", PAGE, re.MULTILINE)[0]
    before, use = (ROOT / SCRIPTS[0]).read_text(encoding="utf-8").split("out[step, lane]")
    script = tmp_path / "parity.py"
    script.write_text(f"{before}{line}\n            out[step, lane]{use}", encoding="utf-8")
    try:
        code = run.main([str(script)])
    except AssertionError:  # The script's own: nothing was written.
        code = 1
    assert said in capsys.readouterr().out
    assert code == (kind == "hangs")
