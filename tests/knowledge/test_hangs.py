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
WRAPS = PAGE.partition("## Once the ring")[2].partition("- **Stuck")[0]
WRAPPED = re.findall(r"\| `(.+?)` \| `(.+?)` \| \*(.+?)\*", WRAPS)
FENCES = re.findall(r"^``` \{ \.python \}\n(.+?)^```", PAGE, re.MULTILINE | re.DOTALL)
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


def _ends(text: str, script: Path) -> int:
    """Exit code of a run; the script's own assertion, of its values, counts as 1."""
    script.write_text(text, encoding="utf-8")
    try:
        return run.main([str(script)])
    except AssertionError:
        return 1


@pytest.mark.parametrize(("right", "wrong", "said"), WRAPPED)
def test_a_mistake_that_shows_once_the_ring_has_come_round(
    right: str, wrong: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / SCRIPTS[0]).read_text(encoding="utf-8")
    assert right in text
    text = text.replace(right, wrong, 1)
    assert _ends(re.sub(r"\(6, WARP", "(2, WARP", text), tmp_path / "parity.py") == 0
    assert "0 findings" in capsys.readouterr().out
    assert _ends(re.sub(r"\(6, WARP", "(3, WARP", text), tmp_path / "parity.py") == 1
    assert said in capsys.readouterr().out


def test_four_mistakes_show_once_the_ring_has_come_round() -> None:
    assert len(WRAPPED) == 4


def test_bytes_of_valid_rows_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "examples/hopper/tma.py").read_text(encoding="utf-8")
    rows = "cutlass.min(ROWS, out.shape[0] - block * ROWS)"
    text = text.replace("expect_tx(full, ROWS *", f"expect_tx(full, {rows} *")
    said = "lacks an announcement of 768 bytes that came"
    assert f"*{said}*" in PAGE
    assert _ends(text, tmp_path / "tma.py") == 1
    assert said in capsys.readouterr().out


def test_the_pattern_is_the_ring_s() -> None:
    ring = (ROOT / "examples/cute_sync/ring.py").read_text(encoding="utf-8")
    for part in FENCES[0].strip("\n").split("\n\n"):
        assert part in ring


def test_a_bounded_wait_leaves_the_ring_right(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / SCRIPTS[0]).read_text(encoding="utf-8")
    text = text.replace("@cute.kernel\n", f"{FENCES[1]}\n\n@cute.kernel\n")
    bounded = r"bounded_wait(\1, parity, stage, step)"
    text, waits = re.subn(r"cute\.arch\.mbarrier_wait\((.+?), parity\)", bounded, text)
    assert waits == 2
    assert _ends(text, tmp_path / "parity.py") == 0
    assert "0 findings" in capsys.readouterr().out
