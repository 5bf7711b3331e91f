"""Device pages: every figure leads to its source, every conflict shows its choice."""

from __future__ import annotations

import dataclasses
import re
import types

import pytest

from generators.pages import devices
from mla_var3.campaign import contributing
from mla_var3.devices import all_devices, load
from mla_var3.devices.model import UNKNOWN
from tests.evidence.making import timed_record
from tests.generators.planted import small_site


@pytest.fixture
def content(tree):
    return {page.path: page.content for page in devices.pages(small_site(tree))}


@pytest.mark.parametrize("device", all_devices(), ids=lambda device: device.key)
def test_each_address_is_a_link(content, device):
    _, _, stated = content[devices.device_page(device)].partition("Every figure as stated")
    linked = re.findall(r"\]\((https?://[^)]+)\)", stated)
    wanted = [f.address for f in device.figures if f.address not in ("", UNKNOWN)]
    assert sorted(address for address in linked if address in wanted) == sorted(wanted)


@pytest.mark.parametrize("device", all_devices(), ids=lambda device: device.key)
def test_each_conflict_has_the_figure_used_and_its_reason(content, device):
    text = content[devices.device_page(device)]
    _, _, section = text.partition("Where sources disagree")
    rows = [line for line in section.partition("</details>")[0].split("\n") if "`" in line]
    assert len(rows) == len(device.conflicts)
    for row, used in zip(rows, device.conflicts, strict=True):
        reason = next(choice.reason for choice in device.used if choice.metric == used)
        assert f"`{used}`" in row
        assert "** (used)" in row
        assert devices.cell(reason) in row


def test_mixed_ceilings_say_which_is_measured(content):
    text = content["devices/nvidia-h200-sxm.md"]
    assert re.search(r"\| bfloat16 \|.*\| measured \|", text)
    assert re.search(r"\| float16 \| reference \|.*\| measured \|", text)
    assert re.search(
        r"\| float8 \| reference \|.*\| published compute, measured bandwidth \|", text
    )


def test_a_page_says_what_is_wanted_of_a_gpu_that_kernels_compile_for(content):
    assert "## What is wanted" in content["devices/nvidia-b200.md"]
    assert "nox -s contribute" in content["devices/nvidia-b200.md"]
    assert "## What is wanted" not in content["devices/amd-mi300x.md"]


def test_a_contributed_run_is_marked(tree, monkeypatch):
    about = contributing.About(
        run="ab12", device="nvidia-b200", name="NVIDIA B200", driver="580", by="A | Person",
        time="2026-11-23T12:00:00Z", seconds=400,
    )  # fmt: skip
    monkeypatch.setattr(contributing, "contributed", lambda root: {"ab12": about})
    run = types.SimpleNamespace(record=timed_record(target="nvidia-b200"))
    site = dataclasses.replace(small_site(tree), runs=(run,))
    link = lambda name: "x"  # noqa: E731
    said = devices._records(site, load("nvidia-b200"), link)
    assert "Contributed runs among the records: `ab12` by A &#124; Person on 2026-11-23." in said
