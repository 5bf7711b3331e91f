# ruff: noqa: E501  # A PTX statement stays on its line.
"""Cluster launch control: every cluster's work is done once, whoever does it."""

import numpy as np
import pytest

from mla_var3.emulator import launch
from mla_var3.emulator.options import STRICT, Options
from tests.emulator.events import wait

# Each CTA notes its work in out[index], claims another one, and goes on with that until none is left.
TEXT = f"""
.version 8.7
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 out) {{
.reg .pred %p<4>; .reg .b32 %r<16>; .reg .b64 %rd<8>; .reg .b128 %answer;
.shared .align 16 .b8 got[16]; .shared .align 8 .b8 bar[8];
ld.param.u64 %rd1, [out]; mov.u32 %r1, got; mov.u32 %r2, bar; mov.u32 %r3, %ctaid.x; mov.u32 %r4, %ctaid.y; mov.u32 %r9, 0;
mbarrier.init.shared.b64 [%r2], 1; fence.mbarrier_init.release.cluster;
AGAIN:
mov.u32 %r5, %nctaid.x; mad.lo.u32 %r6, %r4, %r5, %r3; mul.wide.u32 %rd2, %r6, 4; add.u64 %rd2, %rd2, %rd1;
ld.global.u32 %r7, [%rd2]; add.u32 %r7, %r7, 1; st.global.u32 [%rd2], %r7;
mbarrier.arrive.expect_tx.shared.b64 _, [%r2], 16;
clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%r1], [%r2];
{wait("%r2", "%r9")}
ld.shared.v2.b64 {{%rd3, %rd4}}, [%r1]; fence.proxy.async.shared::cta;
mov.b128 %answer, {{%rd3, %rd4}};
clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p1, %answer;
xor.b32 %r9, %r9, 1;
clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %r3, %answer;
clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {{%r10, %r4, %r11, _}}, %answer;
@%p1 bra AGAIN;
ret;
}}
"""


@pytest.mark.parametrize("options", [Options(), Options(seed=1, jobs=2), Options(model=STRICT)])
def test_all_work_is_done_once(options):
    out = np.zeros(12, np.uint32)
    done = launch(TEXT, [out], (4, 3), 1, options=options)
    assert (out == 1).all()
    assert not done.diagnostics, done.diagnostics[0]


EVERYONE = (
    TEXT.replace("%ctaid.x;", "%ctaid.x; mov.u32 %r12, %cluster_ctarank; setp.ne.u32 %p2, %r12, 0;", 1)
    .replace("fence.mbarrier_init.release.cluster;", "fence.mbarrier_init.release.cluster; barrier.cluster.arrive; barrier.cluster.wait;")
    .replace("clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128", "barrier.cluster.arrive; barrier.cluster.wait; @!%p2 clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.multicast::cluster::all.b128")
    .replace("@%p1 bra AGAIN;", "add.u32 %r3, %r3, %r12; barrier.cluster.arrive; barrier.cluster.wait; @%p1 bra AGAIN;")
)  # fmt: skip


@pytest.mark.parametrize("options", [Options(), Options(seed=1)])
def test_an_answer_goes_to_every_cta_of_a_cluster(options):
    out = np.zeros(24, np.uint32)
    done = launch(EVERYONE, [out], (8, 3), 1, cluster=2, options=options)
    assert (out == 1).all()
    assert not done.diagnostics, done.diagnostics[0]
