"""A ceiling is the time on which windows agree, not that of a board that is still settling."""

from __future__ import annotations

import pytest

from mla_var3.errors import ToolchainError
from mla_var3.profiling import ceilings, energy, timing
from mla_var3.profiling.ceilings import AGREEING, MOST, agree, settled


class Board:
    """A GPU whose clock falls by window, from the first to the last of its times."""

    def __init__(self, *times: float) -> None:
        self.times, self.asked = list(times), []

    def replays_us(self, graph, count):
        self.asked.append(count)
        if len(self.asked) == 1:
            return [self.times[0]] * count
        return [self.times.pop(0) if len(self.times) > 1 else self.times[0]] * count


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch):
    monkeypatch.setattr(timing, "capture", lambda body: None)
    monkeypatch.setattr(energy, "meter", lambda: "none")


def test_the_first_windows_do_not_count():
    found = settled(board := Board(1000.0, 1100.0, 1150.0, 1150.0, 1152.0), lambda: None)
    assert found.first_us == 1000.0
    assert found.windows_us == (1150.0, 1150.0, 1152.0)
    assert found.median_us == 1150.0
    assert set(board.asked[1:]) == {500}
    assert str(found) == "median of 3 windows of 0.5 s that agree"


def test_two_boards_that_begin_apart_end_alike():
    cold = settled(Board(1000.0, 1100.0, 1150.0, 1151.0, 1150.0), lambda: None)
    warm = settled(Board(1149.0, 1150.0, 1150.0), lambda: None)
    assert cold.first_us < 0.9 * warm.first_us
    assert cold.median_us == pytest.approx(warm.median_us, rel=ceilings.SHARE)


def test_a_board_that_never_settles_is_refused():
    times = [1000.0 * 1.05**n for n in range(MOST + 2)]
    with pytest.raises(ToolchainError, match=r"24 windows of 0\.5 s do not agree within 1%"):
        settled(Board(*times), lambda: None)


def test_windows_agree_within_the_share():
    assert not agree([1.0] * (AGREEING - 1))
    assert agree([9.0, 1.0, 1.0, 1.01])
    assert not agree([1.0, 1.0, 1.02])


def test_clock_and_reason_of_the_last_window_are_told(monkeypatch):
    class Meter:
        def sampling(self):
            import contextlib

            return contextlib.nullcontext(energy.Samples([1600.0, 1620.0, 1610.0], {"power"}))

    monkeypatch.setattr(energy, "meter", Meter)
    found = settled(Board(1000.0), lambda: None)
    assert str(found).endswith("that agree at 1,610 MHz (power)")
