"""Kernels without a bug give right values and no report, under every schedule and model."""

import numpy as np
import pytest

from mla_var3.emulator.launcher import launch
from mla_var3.emulator.options import STRICT, Options
from tests.emulator.kernels import ALL, RING


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    "options",
    [Options(), Options(seed=1), Options(seed=2, model=STRICT)],
    ids=["lowest", "seed1", "strict"],
)
def test_right_and_clean(name: str, options: Options) -> None:
    right, done = ALL[name].run(options=options)
    assert not done.diagnostics, "\n".join(map(str, done.diagnostics))
    assert right


@pytest.mark.parametrize("name", ALL)
def test_values_do_not_need_checks(name: str) -> None:
    right, done = ALL[name].run(options=Options(checks=False))
    assert right
    assert not done.diagnostics


def test_boxes_outside_of_the_tensor_bring_zeros() -> None:
    # Two rows more than the tensor has: their boxes lie wholly outside.
    case = RING.case()
    case.arguments[2] = 8
    done = launch(RING.ptx(), case.arguments, 1, RING.block, regions=case.keep)
    assert not done.diagnostics
    assert np.allclose(case.out, case.expected, atol=1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_warpgroups_of_a_later_cta_stay_whole_under_every_schedule(seed: int) -> None:
    # A CTA of five warps: the next one's first warpgroup does not begin at a multiple of 128.
    text = (
        ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k()\n{\n"
        ".reg .f32 %f<4>; .reg .b32 %r<2>; .reg .pred %p; .reg .b64 %rd<2>;\n"
        ".shared .align 1024 .b8 tile[2048];\n"
        "mov.u32 %r0, %tid.x; setp.gt.u32 %p, %r0, 127;\n"
        "@%p bra END;\nmov.u32 %r1, tile; shr.u32 %r1, %r1, 4; cvt.u64.u32 %rd0, %r1;\n"
        "mov.b32 %f0, 0; mov.b32 %f1, 0; mov.b32 %f2, 0; mov.b32 %f3, 0;\n"
        "setp.ne.u32 %p, %r0, %r0;\nwgmma.fence.sync.aligned;\n"
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, "
        "%rd0, %rd0, %p, 1, 1, 0, 0;\nwgmma.commit_group.sync.aligned;\n"
        "wgmma.wait_group.sync.aligned 0;\nEND:\nbarrier.cluster.arrive;\n"
        "barrier.cluster.wait;\nret;\n}\n"
    )
    done = launch(text, [], 2, 160, cluster=2, options=Options(seed=seed))
    assert "deadlock" not in {d.kind for d in done.diagnostics}
