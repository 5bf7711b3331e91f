"""A page per campaign: ladder, target, failures with their reasons, evidence, what was known."""

from __future__ import annotations

import dataclasses
import json

import pytest

from generators.pages import campaigns
from mla_var3 import devices
from mla_var3.campaign.memory import Memory
from mla_var3.campaign.restated import of_text, require_lines
from mla_var3.campaign.stepzero import require_sourced
from mla_var3.campaign.workspace import README, read_settings
from mla_var3.paths import repo_root
from tests.campaign.test_memory import TIMES, V0, V1
from tests.generators.planted import small_site

SETTINGS = {
    "name": "mine", "device": "nvidia-h200-sxm", "source": "examples/adopted_matmul.py",
    "problem": {"m": 64}, "target_us": 40.0,
}  # fmt: skip
PASSED = {"median_us": 100.0, "run": "a1", "device": "nvidia-h200-sxm", "protocol": "events"}


@pytest.fixture
def root(tree):
    root = tree.root / "campaigns/mine"
    root.mkdir(parents=True)
    (root / "campaign.json").write_text(json.dumps(SETTINGS))
    (root / README).write_text("# Campaign mine\n")
    memory = Memory(root)
    memory.create({**V0, "performance": PASSED})
    memory.create({
        **V1, "pattern": "", "verdict": "faster", "performance": TIMES,
        "change": "larger | tiles", "pitfalls": [{"pitfall": "<b>spills</b>", "fix": "8 warps"}],
    })  # fmt: skip
    memory.create({
        **V1, "version": "v2", "parent": "v1", "verdict": "wrong", "masked": True,
        "correctness": {"status": "failed", "message": "out: relative error <i>1</i>"},
    })  # fmt: skip
    return root


def shown(tree) -> dict[str, str]:
    site = small_site(tree)
    found = dict(campaigns.places(site))
    device = {"knowledge/devices/nvidia-h200-sxm.toml": "devices/h200.md"}
    site = dataclasses.replace(site, addresses={**site.addresses, **found, **device})
    return {page.path: page.content for page in campaigns.pages(site)}


def test_a_page_has_the_ladder_and_the_target(tree, root):
    page = shown(tree)["campaigns/mine.md"]
    assert "40 us; the fastest takes 50 us, 1.25x of it" in page
    assert "| `v1` | `v0` | larger &#124; tiles | faster | 50.00 us | 2x faster |" in page
    assert "results/x" in page
    assert "run `a1`" in page


def test_failures_stand_with_their_reason_and_nothing_runs(tree, root):
    page = shown(tree)["campaigns/mine.md"]
    assert "## What failed" in page
    assert "- `v2`: it is wrong: out: relative error &lt;i&gt;1&lt;/i&gt;." in page
    assert "wrong (masked)" in page
    assert "&lt;b&gt;spills&lt;/b&gt;. Mended: 8 warps" in page
    assert "<b>" not in page.replace("<br>", "")


def test_what_was_known_before_is_folded(tree, root):
    Memory(root).create({
        **V1, "version": "v3", "origin": "history", "evidence": [], "negative": True,
        "verdict": "not timed",
    })  # fmt: skip
    page = shown(tree)["campaigns/mine.md"]
    assert "1 versions, 1 failed" in page
    assert page.count("### v") == 3


def test_the_index_counts_versions_and_failures(tree, root):
    index = shown(tree)["campaigns/index.md"]
    assert "| [mine](mine.md) | adopted&#95;matmul.py | `nvidia-h200-sxm` | 3 | 1 |" in index


def test_a_checkout_without_campaigns_has_no_page(tree):
    assert shown(tree) == {}


COMMITTED = sorted((repo_root() / "campaigns").glob("*/campaign.json"))


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.parent.name)
def test_what_is_committed_is_sound(path):
    assert read_settings(path.parent).name == path.parent.name
    entries = Memory(path.parent).entries(masked=True)
    assert any(entry.origin == "start" for entry in entries)
    for text in (path.parent / README, *(path.parent / "plans").glob("*.md")):
        require_sourced(text)
    told = of_text(path.parent / README, devices.find(read_settings(path.parent).device))
    require_lines(path.parent / README, told)
