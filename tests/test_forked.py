"""Work in forked processes: what it returns, raises, says, and how it may die."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
import weakref
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


class Engine:
    """Its end needs what only the process has that made it."""


def test_what_the_parent_made_does_not_end_in_its_children(tmp_path: Path):
    engines = [Engine()]
    weakref.finalize(engines[0], (tmp_path / "ended").touch)
    work = {"lets go": engines.clear}
    ((_, ended),) = forked.run(work, folder=tmp_path, workers=1, timeout=60, explain=str)
    assert ended.failure is None
    assert not (tmp_path / "ended").exists()
    engines.clear()
    assert (tmp_path / "ended").exists()


PARENT = """
import time
from functools import partial
from pathlib import Path
from mla_var3 import forked

work = {n: partial(time.sleep, 300) for n in range(2)}
ended = forked.run(work, folder=Path(FOLDER), workers=2, timeout=300, explain=str)
import threading
threading.Thread(target=lambda: (time.sleep(1), print("started", flush=True))).start()
next(ended)
"""


def test_children_end_with_a_parent_that_is_killed(tmp_path: Path):
    text = PARENT.replace("FOLDER", repr(str(tmp_path)))
    parent = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    assert parent.stdout.readline() == "started\n"
    told = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text()
    children = [int(pid) for pid in told.split()]
    assert len(children) == 2
    parent.kill()
    parent.wait()
    until = time.monotonic() + 20
    while any(alive(pid) for pid in children) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(alive(pid) for pid in children)


def test_a_spawned_process_asks_for_the_signal_and_goes_on():
    process = multiprocessing.get_context("spawn").Process(target=forked.end_with_parent)
    process.start()
    process.join()
    assert process.exitcode == 0


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
