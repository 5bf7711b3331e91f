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
