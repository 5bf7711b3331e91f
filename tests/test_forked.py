"""Work in forked processes: what it returns, raises, says, and how it may die."""

import os
import signal
import time
from functools import partial
from pathlib import Path

import pytest

from mla_var3 import forked


def raises() -> None:
    raise ValueError("no")


def dies() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_every_ending_is_told_apart(tmp_path: Path):
    work = {"answers": partial(int, "7"), "raises": raises, "dies": dies,
            "lingers": partial(time.sleep, 60)}  # fmt: skip
    ended = dict(forked.run(work, folder=tmp_path, workers=4, timeout=3, explain=str))
    assert (ended["answers"].result, ended["answers"].failure) == (7, None)
    assert (ended["raises"].failure, ended["raises"].crashed) == ("no", False)
    assert (ended["dies"].failure, ended["dies"].late) == ("the process ended by signal 9", False)
    assert ended["lingers"].late
    assert ended["lingers"].failure == "took longer than 3 s"
    assert ended["lingers"].seconds >= 3


def test_one_that_ends_is_given_before_the_others_do(tmp_path: Path):
    work = {"slow": partial(time.sleep, 60), "fast": partial(int, "1")}
    ended = forked.run(work, folder=tmp_path, workers=2, timeout=120, explain=str)
    key, first = next(ended)
    assert (key, first.result) == ("fast", 1)
    ended.close()  # Ends the slow one too.


@pytest.mark.parametrize("workers", [1, 3])
def test_nothing_is_lost_whatever_runs_side_by_side(tmp_path: Path, workers: int):
    work = {n: partial(pow, n, 2) for n in range(7)}
    ended = dict(forked.run(work, folder=tmp_path, workers=workers, timeout=60, explain=str))
    assert {n: one.result for n, one in ended.items()} == {n: n * n for n in range(7)}
