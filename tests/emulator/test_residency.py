"""Whether a CTA is there whose shared memory another one touches: begun, and not ended."""

from __future__ import annotations

import numpy as np
import pytest

from mla_var3.emulator.clocks import BULK, Clocks, Event
from mla_var3.emulator.diagnostics import Reporter
from mla_var3.emulator.options import MODELS
from mla_var3.emulator.program import Program
from mla_var3.emulator.residency import AFTER_START, BEFORE_END, Residency
from mla_var3.gpuless.ptx import parse
from tests.emulator.events import Snippet

KERNEL = Snippet({f"step {i}": "add.u32 %r2, %r1, 1;" for i in range(12)})


class Cluster:
    """Three CTAs of two warps each."""

    def __init__(self, model: str = "default") -> None:
        self.reporter = Reporter(Program(parse(KERNEL.text())).kernel, "", model)
        self.clocks = Clocks(6, 2)
        self.residency = Residency(self.clocks, 3, self.reporter, MODELS[model])
        self.residency.start()

    def meet(self, warps: list[int], relaxed: bool = False) -> None:
        """A barrier; a relaxed one orders execution alone."""
        vector = self.clocks.vector()
        self.clocks.publish(warps, vector)
        self.clocks.tick(warps)
        for w in warps:
            known = self.clocks.barriers_seen if relaxed else self.clocks.seen
            np.maximum(known[w], vector, out=known[w])

    def touch(self, cta: int, warp: int, pc: int = 5, begun: bool = False) -> None:
        self.residency.threads(np.array([cta, warp // 2]), np.array([warp, warp]), pc, begun)

    @property
    def said(self) -> list[tuple[str, int]]:
        return [(d.message, d.at.pc) for d in self.reporter.diagnostics]


def message(cta: int, warp: int, what: str) -> str:
    return (
        f"shared memory of CTA {cta} of the cluster is accessed by warp {warp % 2} of CTA "
        f"{warp // 2} of the cluster, and nothing says that the CTA {what}"
    )


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("relaxed", [False, True])
@pytest.mark.parametrize(("warp", "cta"), [(0, 1), (3, 0), (1, 2), (5, 1)])
def test_a_cta_has_begun_once_one_of_its_warps_was_met(
    warp: int, cta: int, relaxed: bool, model: str
) -> None:
    c = Cluster(model)
    c.touch(warp // 2, warp)  # The own is there.
    assert c.said == []
    c.touch(cta, warp)
    assert c.said == [(message(cta, warp, "has begun"), 5)]
    assert c.reporter.diagnostics[0].missing == AFTER_START
    for other in (2 * cta, 2 * cta + 1):
        known = Cluster(model)
        known.meet(sorted([warp, other]), relaxed)
        known.touch(cta, warp)
        assert known.said == []
    third = next(x for x in range(3) if x not in (cta, warp // 2))
    apart = Cluster(model)
    apart.meet(sorted([warp, 2 * third]), relaxed)
    apart.touch(cta, warp)
    assert len(apart.said) == 1
    told = Cluster(model)
    told.touch(cta, warp, begun=True)
    assert told.said == []


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("relaxed", [False, True])
def test_a_cta_ends_when_it_knows_of_every_access(relaxed: bool, model: str) -> None:
    c = Cluster(model)
    c.touch(1, 0, 5, begun=True)
    c.meet([0, 3], relaxed)
    c.residency.end(1)
    keeps = not relaxed or model == "default"
    assert c.said == ([] if keeps else [(message(1, 0, "has not ended"), 5)])
    late = Cluster(model)
    late.meet([0, 3], relaxed)
    late.touch(1, 0, 6, begun=True)
    late.residency.end(0)
    late.residency.end(2)
    assert late.said == []
    late.residency.end(1)
    assert late.said == [(message(1, 0, "has not ended"), 6)]
    assert late.reporter.diagnostics[0].missing == BEFORE_END


def test_a_cta_that_has_ended_is_not_touched() -> None:
    c = Cluster()
    c.residency.end(1)
    c.touch(2, 0, 4, begun=True)
    assert c.said == []
    c.touch(1, 0, 5, begun=True)
    assert c.said == [(message(1, 0, "has not ended"), 5)]
    c.residency.start()
    c.reporter.found.clear()
    c.touch(1, 0, 5, begun=True)
    assert c.said == []


@pytest.mark.parametrize("own", [False, True])
def test_operations_are_over_when_the_cta_knows_it(own: bool) -> None:
    c = Cluster()
    chain = c.clocks.chain("copy", BULK)
    event = Event(chain, 3, 0, BULK)
    c.residency.unit(0, event, 7, own)
    c.residency.unit(1, event, 8)
    assert c.said == []
    c.clocks.finish(3, chain, 2)
    c.residency.end(1)
    assert c.said == [(message(1, 0, "has not ended"), 8)]
    c.reporter.found.clear()
    c.residency.end(0)
    assert c.said == ([(message(0, 0, "has not ended"), 7)] if own else [])
    known = Cluster()
    known.residency.unit(1, Event(known.clocks.chain("copy", BULK), 3, 0, BULK), 8)
    known.clocks.finish(2, chain, 3)
    known.residency.end(1)
    assert known.said == []
