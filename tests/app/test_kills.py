"""A kill -9 at any moment leaves nothing half-written, and no process behind.

Each command is killed once, while processes of its own live where it has some.
``HYPERMLA_KILLS=12 pytest tests/app/test_kills.py -n0`` kills each 12 times, at moments spread over
its run.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from mla_var3 import evidence
from mla_var3.cache import Cache
from mla_var3.evidence import integrity
from mla_var3.paths import repo_root

KILLS = int(os.environ.get("HYPERMLA_KILLS", "1"))
#: What no process may outlive its parent by.
GONE_WITHIN_S = 5.0
#: In the environment of all that a killed command started.
MARK = "HYPERMLA_KILLED_BY_TEST"

pytestmark = pytest.mark.skipif(not Path("/proc/self").exists(), reason="reads /proc")

WRITER = """
import sys
from pathlib import Path
from mla_var3 import evidence
from tests.evidence.making import timed_record
for number in range(10**6):
    evidence.write(timed_record(slug=f"b{number}"), Path(sys.argv[1]))
"""


@dataclass(frozen=True)
class Command:
    """A command that is killed.

    Attributes:
        name: How it is called.
        arguments: Of Python, for a folder.
        children: Processes of its own that are awaited before the kill.
        seconds: Longest wait after that.
        often: Whether the suite kills it, and not only a longer run.
    """

    name: str
    arguments: Callable[[Path], list[str]]
    children: int
    seconds: float
    often: bool = True


COMMANDS = [
    Command(
        "check",
        lambda _: ["-m", "mla_var3.app.commands", "check", "flash_mla", "v1", "--anew"], 2, 12,
    ),
    Command(
        "profile",
        lambda _: ["-m", "mla_var3.kernel", "flash_mla@cutile-dsl", "v1", "--prof_type=static",
                   "--arch=sm_90,sm_100", "--b=2", "--t=256"],
        1, 15,
    ),
    Command(
        "bench",
        lambda _: ["-m", "mla_var3.app.commands", "bench", "--designs=flash_mla@cutile-dsl",
                   "--arch=sm_90", "--b=2", "--t=256"],
        1, 30, often=False,
    ),
    Command(
        "run",
        lambda _: ["-m", "mla_var3.app.run", str(repo_root() / "examples/cute_sync/grid.py")],
        0, 8, often=False,
    ),
    Command("records", lambda root: ["-c", WRITER, str(root / "results")], 0, 5),
    Command(
        "docs",
        lambda root: ["-m", "mkdocs", "build", "-q", "--site-dir", str(root / "site")],
        2, 40, often=False,
    ),
]  # fmt: skip


def living(mark: str) -> list[int]:
    """Processes that have a mark in their environment and are no zombies."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            marked = f"{MARK}={mark}".encode() in (folder / "environ").read_bytes()
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if marked and state not in "ZX":
            found.append(int(folder.name))
    return found


def command_line(pid: int) -> str:
    """What a process runs; empty where it has just ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()[:200]
    except OSError:
        return ""


def killed(command: Command, root: Path, seed: int) -> Iterator[str]:
    """Start a command, kill it at a moment that the seed tells; yields what is amiss."""
    mark = uuid.uuid4().hex
    started = subprocess.Popen(
        [sys.executable, *command.arguments(root)],
        cwd=repo_root(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={**os.environ, MARK: mark, "HYPERMLA_CACHE_DIR": str(root / "cache"),
             **({} if command.name == "docs" else {"HYPERMLA_ROOT": str(root)})},
    )  # fmt: skip
    try:
        lived = 0
        while started.poll() is None and lived <= command.children:
            time.sleep(0.02)
            lived = len(living(mark))
        assert lived > command.children, "it ended before it had processes of its own"
        before_end = random.Random(seed).uniform(0.1, command.seconds)
        until = time.monotonic() + before_end * (seed > 0) + 0.5
        while started.poll() is None and time.monotonic() < until:
            time.sleep(0.02)
    finally:
        started.kill()  # -9, and that process alone.
        started.wait()
    # A worker that is still importing ends when it has: on a busy machine that takes longer.
    busy = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    until = time.monotonic() + GONE_WITHIN_S * busy
    while (left := living(mark)) and time.monotonic() < until:
        time.sleep(0.05)
    yield from (f"process {pid} lives on: {command_line(pid)}" for pid in left)
    for pid in left:
        os.kill(pid, 9)


def half_written(root: Path) -> Iterator[str]:
    """Files below a folder that are not whole."""
    for path in evidence.files(root / "results"):
        run = evidence.read(path)  # Raises where it is not whole.
        yield from integrity.file_faults(run, path.relative_to(root / "results"))
    for path in (root / "out").rglob("*"):
        if path.is_file() and path.suffix in (".json", ".md", ".csv", ".sass", ".cubin"):
            if not path.stat().st_size:
                yield f"{path} is empty"
            if path.suffix == ".json":
                json.loads(path.read_text())
    cache = Cache(root / "cache")
    for place in cache.folder.glob("??/*"):
        if cache.get(place.name) is None:
            yield f"the cache holds half of {place.name}"


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_a_kill_leaves_nothing_behind(command: Command, tmp_path: Path) -> None:
    if KILLS == 1 and not command.often:
        pytest.skip("takes long; HYPERMLA_KILLS=12 kills it too")
    for seed in range(KILLS):
        amiss = [*killed(command, tmp_path, seed), *half_written(tmp_path)]
        assert amiss == [], f"{command.name}, kill {seed}"
        shutil.rmtree(tmp_path / "cache", ignore_errors=True)  # The next one compiles again.
