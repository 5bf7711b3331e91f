"""Arithmetic that a page of the project states, against the records that it cites."""

from __future__ import annotations

import pytest

from mla_var3 import devices, evidence
from mla_var3.knowledge import metrics

#: Allocation a thread that the machine code leaves to warps that do not work on tiles, and how
#: many such warps a block has (page O12, evidence "handover").
KEPT, OTHER_WARPS = 32, 4
DEFAULT_WORKER_WARPS = 4


@pytest.mark.parametrize(
    "record",
    list(
        evidence.find(
            design="flash_mla", language="cutile-dsl", target="static/sm_90", mode="static"
        )
    ),
    ids=lambda record: f"{record.kernel.version}-{record.slug}",
)
def test_o12_rule_predicts_which_version_spills(record: evidence.Record) -> None:
    h200 = devices.load("nvidia-h200-sxm")
    value = {r.metric.name: r.value for r in metrics.readings(record)}
    rows, keys, width = value["tile_m"], value["tile_n"], value["latent_dim"]
    warps = value["num_worker_warps"] or DEFAULT_WORKER_WARPS
    registers = h200.figure("registers_per_sm").normalised
    file = registers - 32 * OTHER_WARPS * KEPT
    need = rows * (width + keys + keys / 2) / (32 * warps) + 40
    cap = min(h200.figure("max_registers_per_thread").normalised, file / (32 * warps))
    assert (need > cap) == (value["spill_instructions"] > 0)
    # What the record calls registers is the file over all threads, as at launch.
    threads = 32 * value["warps_per_block"]
    assert value["registers"] == min(255, registers // threads // 8 * 8)
    assert value["warps_per_block"] == warps + OTHER_WARPS
