from __future__ import annotations

import pytest

from mla_var3.evidence import Passed
from mla_var3.knowledge import stating

from .trees import failed_record, make_record


def of(**changes):
    record = make_record("v0", **changes)
    (stage,) = record.outcome.stages
    return {each.fact: each for each in stating.stated(record, stage)}


def test_every_fact_has_a_value_or_a_reason():
    found = of()
    assert list(found) == list(stating.FACTS)
    assert all(each.text for each in found.values())
    assert found["registers"].standing == "stated"
    assert found["registers"].text.startswith("200 per thread")


def test_what_means_nothing_is_told_from_what_nobody_observed():
    found = of(static={"mma_path": "HGMMA", "mma_instructions": {"HGMMA.64x64x16.F32.BF16": 8}})
    assert found["waits per wgmma"].standing == "not observed"
    assert found["bank conflicts"].standing == "no meaning"
    assert "names no threads" in found["bank conflicts"].text
    plain = of(static={"mma_path": "none", "mma_instructions": {}})
    assert plain["waits per wgmma"].text == "the stage multiplies nothing"
    assert plain["rows used"].standing == "no meaning"


def test_waits_and_steps_in_flight_of_cutile():
    products = {"HGMMA.64x64x16.F32.BF16": 8}
    found = of(
        static={
            "mma_path": "HGMMA", "mma_instructions": products, "wgmma_waits": 2, "ring": 3,
            "tma_loads": 4,
        }
    )  # fmt: skip
    assert found["waits per wgmma"].text == "0.25"
    assert found["stages in flight"].text == "3"
    # 64 by 64 by 16 values of 2 bytes from both operands.
    assert found["shared memory read"].text.startswith("0.0312 bytes per FLOP")


@pytest.mark.parametrize(("words", "versions"), [((), 2), (("flash_mla", "v1"), 1), (("x",), 0)])
def test_the_newest_of_each_is_listed(words, versions):
    records = [make_record("v0"), make_record("v1"), make_record("v1", target="cpu")]
    assert len(stating.newest(records, words)) == versions


def test_a_run_that_failed_states_nothing():
    assert not isinstance(failed_record("v0").outcome, Passed)
    assert list(stating.of_record(failed_record("v0"))) == []
