"""What a kernel loses by its tiles, told by its tiling alone."""

import pytest

from mla_var3.knowledge import losses, tiles
from mla_var3.knowledge.court import judging
from mla_var3.knowledge.court.observing import Seen, SeenStage, Work
from mla_var3.languages.cute.facts import CuteFacts
from mla_var3.runtime import costs
from mla_var3.workloads import Cost


def _told(rows: int, columns: int, blocks: int, cluster: int = 1, **problem: int):
    static = CuteFacts(
        kernel="k", arch="sm_90", mma_path="HGMMA", blocks_per_cluster=cluster, instructions=1
    )
    stage = SeenStage(
        name="gemm", kernel="k", tiling={"tile_m": rows, "tile_n": columns}, grid=(blocks,),
        static=static, work=Work(flops=1, bytes=1),
    )  # fmt: skip
    seen = Seen(
        language="cute-dsl", layer="gemm", stages=(stage,),
        problem={"m": 8192, "n": 8192, "k": 8192, "dtype": "bf16", **problem},
    )  # fmt: skip
    record = judging.record_of(seen)
    return record, record.outcome.stages[0]


@pytest.mark.parametrize(
    ("blocks", "loss"), [(132, 5 * 132 / 544), (544, None), (136, 1.0), (272, 1.0)]
)
def test_rounds_of_blocks_that_take_tile_after_tile(blocks, loss):
    found = tiles.rounds(*_told(128, 256, blocks, m=4352, n=4096))
    assert found == (None if loss is None else pytest.approx(loss))


@pytest.mark.parametrize(
    ("rows", "columns", "cluster", "slow"),
    [(64, 64, 1, True), (128, 64, 1, True), (128, 256, 1, False), (64, 64, 2, None)],
)
def test_loads_of_a_tile_without_counts(monkeypatch, rows, columns, cluster, slow):
    """At 64 by 64 a multiprocessor asks for 128 bytes per clock, and L2 delivers 39 to each."""
    work = Cost(2 * 8192**3, 3 * 2 * 8192**2)
    monkeypatch.setattr(costs, "cost", lambda *_: work)
    record, stage = _told(rows, columns, 132, cluster)
    with costs.given(costs.Given({"gemm": work}, None)):
        loss = losses.loads(record, stage)
    assert loss is None if slow is None else (loss > 1.1) is slow
