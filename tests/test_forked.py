"""Work in forked processes: what it returns, raises, says, and how it may die."""

import gc
import math
import multiprocessing
import os
import re
import resource
import signal
import subprocess
import sys
import time
import weakref
from functools import partial
from pathlib import Path

import pytest

from mla_var3 import forked
from mla_var3.paths import repo_root


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


def largest_core_file() -> int:
    return resource.getrlimit(resource.RLIMIT_CORE)[0]


def test_a_crash_writes_no_core_file(tmp_path: Path):
    before = resource.getrlimit(resource.RLIMIT_CORE)
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (before[1], before[1]))
        work = {0: largest_core_file}
        (found,) = forked.run(work, folder=tmp_path, workers=1, timeout=60, explain=str)
        assert found[1].result == 0
        assert largest_core_file() == before[1], "the work's limit alone is changed"
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, before)


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


def held() -> tuple[int, bool]:
    return len(HELD), "mla_var3.paths" in sys.modules


#: What this process holds and one that only loaded this module does not.
HELD: list[int] = []


def test_forks_of_a_process_that_only_loads_hold_nothing_of_this_one(tmp_path: Path):
    HELD.append(1)
    work = {"held": held, "parent": os.getppid, "raises": raises, "dies": dies}
    load = ["mla_var3.paths", __name__]
    ended = dict(
        forked.run(work, folder=tmp_path, workers=2, timeout=math.inf, explain=str, load=load)
    )
    assert ended["held"].result == (0, True)
    assert ended["parent"].result != os.getpid()
    assert (ended["raises"].failure, ended["dies"].crashed) == ("no", True)
    HELD.clear()


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


class Circle:
    """Nothing but a search for garbage ends it."""

    def __init__(self, ended: Path) -> None:
        self.ended, self.me = ended, self

    def __del__(self) -> None:
        self.ended.write_text(str(os.getpid()))


def test_what_the_parent_no_longer_reaches_does_not_end_in_its_children(tmp_path: Path):
    gc.disable()
    try:
        Circle(tmp_path / "ended")
        work = {"searches": gc.collect}
        ((_, ended),) = forked.run(work, folder=tmp_path, workers=1, timeout=60, explain=str)
        assert ended.failure is None
        assert not (tmp_path / "ended").exists()
    finally:
        gc.enable()
    gc.collect()
    assert (tmp_path / "ended").read_text() == str(os.getpid())


#: Torch starts threads for this where it may have several.
LARGE = """
import multiprocessing, tempfile, torch
from functools import partial
from pathlib import Path
from mla_var3 import forked

def large():
    return torch.sort(torch.zeros(1 << 20)).values.shape[0]

def told(pipe):
    pipe.send(large())

torch.set_num_threads(2)
large()
with tempfile.TemporaryDirectory() as name:
    work = {0: large}
    ((_, ended),) = forked.run(work, folder=Path(name), workers=1, timeout=20, explain=str)
    print(ended.result)
ours, theirs = multiprocessing.get_context("fork").Pipe(False)
process = multiprocessing.get_context("fork").Process(target=told, args=(theirs,), daemon=True)
process.start()
print(ours.recv() if ours.poll(20) else "it waits")
process.kill()
"""


def test_a_fork_does_not_wait_for_threads_that_torch_has_in_its_parent():
    """In a process of its own, whose torch has threads: here it has none."""
    done = subprocess.run([sys.executable, "-c", LARGE], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(1 << 20)] * 2


def test_nothing_forks_by_another_way():
    folders = [repo_root() / name for name in ("src", "generators", "scripts")]
    forks = re.compile(r"""get_context\(["']fork["']\)|\bos\.fork\b|set_start_method""")
    those = {file.name for folder in folders for file in folder.rglob("*.py")
             if forks.search(file.read_text(encoding="utf-8"))}  # fmt: skip
    assert those == {"forked.py"}


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


def test_the_end_of_the_process_ends_what_an_error_left_running(tmp_path: Path):
    code = f"""
import functools, pathlib, time
from mla_var3 import forked
work = {{"now": functools.partial(int, "1"), "late": functools.partial(time.sleep, 300)}}
runs = forked.run(
    work, folder=pathlib.Path({str(tmp_path)!r}), workers=2, timeout=600, explain=str
)
raise ValueError(next(runs)[0])  # The variable keeps the iteration.
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=repo_root()
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "ValueError: now"
