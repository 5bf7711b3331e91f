"""How long instructions keep a multiprocessor busy, by its rates."""

from __future__ import annotations

import pytest

from mla_var3.emulator.durations import Durations
from tests.emulator.test_replay import instruction

TABLE = Durations(load=8, shared=64, peer=4, global_latency=300)


@pytest.mark.parametrize(
    ("op", "cycles"),
    [
        ("add.f32", 1), ("fma.rn.f32", 1), ("add.s32", 2), ("xor.b32", 2), ("ex2.approx.f32", 8),
        ("lg2.approx.f32", 8), ("rcp.approx.f32", 8), ("rsqrt.approx.f32", 8), ("sqrt.rn.f32", 8),
        ("sin.approx.f32", 8), ("cos.approx.f32", 8), ("tanh.approx.f32", 8), ("sub.f32", 1),
        ("mul.f32", 1), ("redux.sync.add.u32", 8), ("add.f64", 2), ("ret", 0),
        ("setmaxnreg.inc.sync.aligned.u32", 0), ("pragma", 0), ("cvta.to.global.u64", 0),
        ("shfl.sync.idx.b32", 4), ("mov.u32", 0), ("bra", 0), ("ld.param.u64", 0),
    ],
)  # fmt: skip
def test_what_a_scheduler_is_busy_for(op: str, cycles: float) -> None:
    assert TABLE.issue(instruction(0, op)) == cycles


@pytest.mark.parametrize(
    ("op", "cycles"),
    [
        ("ldmatrix.sync.aligned.m8n8.x1.shared.b16", 128 / 64),
        ("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", 512 / 64),
        ("stmatrix.sync.aligned.m8n8.x2.shared.b16", 256 / 64),
        ("stmatrix.sync.aligned.m8n8.shared.b16", 128 / 64),
        ("ld.shared.b32", 128 / 64),
        ("ld.shared.b8", 128 / 64),
        ("ld.shared.v4.b32", 512 / 64),
        ("st.shared.v2.b64", 512 / 64),
        ("ld.shared::cluster.b64", 256 / 4),
        ("st.async.shared::cluster.b64", 256 / 64),
        ("ld.global.b16", 256 / 8),
        ("ld.global.v2.f64", 512 / 8),
        ("st.global.v8.f32", 1024 / 8),
        ("red.global.add.f32", 256 / 8),
        ("atom.global.add.u32", 256 / 8),
        ("ld.param.u64", 0),
        ("ld.local.b32", 0),
        ("add.f32", 0),
        ("bar.sync", 0),
    ],
)
def test_what_the_way_to_memory_is_busy_for(op: str, cycles: float) -> None:
    assert TABLE.memory(instruction(0, op)) == cycles


@pytest.mark.parametrize(
    ("op", "cycles"), [("ld.global.b32", 300), ("ld.shared.b32", 0), ("st.global.b32", 0)]
)
def test_what_comes_late(op: str, cycles: float) -> None:
    assert TABLE.waits(instruction(0, op)) == cycles
