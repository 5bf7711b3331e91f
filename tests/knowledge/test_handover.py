"""The mistakes that the lesson on Tensor Memory names are tried in the emulator."""

from __future__ import annotations

import re
import tomllib

from mla_var3.paths import repo_root

ROOT = repo_root()
PAGE = ROOT / "docs/learn/tensor-memory.md"
SEEDED = ROOT / "tests/emulator/seeded.toml"


def test_its_mistakes_are_among_those_that_the_emulator_is_tried_with() -> None:
    text = PAGE.read_text(encoding="utf-8")
    named = re.findall(r"(?:--only=|`)blackwell_mla/([a-z-]+)`", text)
    bugs = tomllib.loads(SEEDED.read_text(encoding="utf-8"))["blackwell_mla"]["bugs"]
    assert len(named) == 2
    assert set(named) <= set(bugs)
