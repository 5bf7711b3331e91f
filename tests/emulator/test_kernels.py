"""Kernels without a bug give right values and no report, under every schedule and model."""

import pytest

from mla_var3.emulator.options import STRICT, Options
from tests.emulator.kernels import ALL


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
