"""Processes that a program starts: what they launch is emulated, and what is found is known."""

from __future__ import annotations

import multiprocessing
import os
import pickle
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from mla_var3.emulator.children import Children
from mla_var3.emulator.options import Options

pytest.importorskip("cutlass", reason="the CuTe DSL is not installed")
SCRIPT = """\
import multiprocessing
import sys

import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def add(x: cute.Tensor, c: cutlass.Constexpr):
    thread, _, _ = cute.arch.thread_idx()
    x[thread] = x[thread] + c


@cute.jit
def host(x: cute.Tensor, c: cutlass.Constexpr, threads: cutlass.Constexpr):
    add(x, c).launch(grid=(1, 1, 1), block=(threads, 1, 1))


def work(c, threads, send, go):
    go.wait()
    x = torch.zeros(64, device="cuda")
    host(from_dlpack(x), c, threads)
    send.send(x.sum().item())
    if threads > 64:
        multiprocessing.Event().wait()  # Until it is killed.


if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    go, running = context.Event(), []
    for c, threads in ((1, 64), (2, 64), (3, 96)):
        receive, send = context.Pipe(duplex=False)
        process = context.Process(target=work, args=(c, threads, send, go))
        process.start()
        running.append((process, receive, c))
    go.set()
    for process, receive, c in running:
        assert receive.poll(120)
        assert receive.recv() == 64 * c
    for process, _, _ in running:
        process.kill()
        process.join()
"""


def emulated(script: Path, method: str) -> dict[str, Any]:
    """What became of the script; runs in a process of its own."""
    from mla_var3.emulator.script import run_script

    done = run_script(script, [method], Options(), "sm_90a")
    assert done.children is not None
    return {
        "error": repr(done.ended.error),
        "launches": len(done.launches),
        "told": [len(told.diagnostics) for told in done.children.heard()],
        "found": {(d.kind, d.at.line) for d in done.diagnostics},
    }


def apart(script: Path, method: str) -> dict[str, Any]:
    """Runs it in a new process: children forked here would wait for threads of other tests."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(emulated, script, method).result()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_their_launches_run_and_findings_are_known(method: str, tmp_path: Path) -> None:
    """Three compile at once: each runs its own kernel. One is killed, and its finding stays."""
    script = tmp_path / "children.py"
    script.write_text(SCRIPT)
    done = apart(script, method)
    assert done["error"] == "None"
    assert done["launches"] == 0, "they ran elsewhere"
    assert done["told"].count(0) == 2
    assert done["found"] == {("out-of-bounds", 13)}


def test_who_started_them_tells_nobody_and_half_a_message_is_left_out(tmp_path: Path) -> None:
    children = Children(tmp_path)
    children.tell([])
    assert not list(tmp_path.iterdir())
    assert children.folder == tmp_path
    (tmp_path / f"{os.getpid()}.told").write_bytes(pickle.dumps("a") + pickle.dumps("bc")[:-3])
    assert children.heard() == ["a"]


@pytest.mark.slow
def test_a_launch_that_is_refused_in_a_child_ends_the_script_with_why(tmp_path: Path) -> None:
    from mla_var3.errors import EmulatorError

    script = tmp_path / "children.py"
    refuse = """
    from mla_var3.emulator import emulation
    from mla_var3.errors import EmulatorError

    def refuse(text):
        raise EmulatorError("the instruction is not emulated")

    emulation.active().patch = refuse
"""
    work = "def work(c, threads, send, go):\n"
    script.write_text(SCRIPT.replace(work, f"{work}{refuse}"))
    with pytest.raises(EmulatorError, match="the instruction is not emulated"):
        apart(script, "spawn")


def test_nothing_is_warned_of(tmp_path: Path) -> None:
    """A program may hold warnings for failures: ours would be such ones."""
    from mla_var3.emulator.script import run_script

    script = tmp_path / "warned.py"
    body = SCRIPT.partition('if __name__ == "__main__":')[0]
    script.write_text(
        f"{body}\nimport warnings\n\nwith warnings.catch_warnings():\n"
        "    warnings.simplefilter('error')\n"
        "    host(from_dlpack(torch.zeros(64, device='cuda')), 1, 64)\n"
    )
    assert run_script(script, [], Options(), "sm_90a").ended.error is None


def test_another_process_tells_what_it_came_to(tmp_path: Path, monkeypatch) -> None:
    """Its launches, and why one was refused; it has a folder of its own, and hears of nothing."""
    first = Children(tmp_path)
    assert first.folder == tmp_path
    first.tell_refusal(ValueError("by itself"))
    assert first.heard() == []
    owner = os.getpid()
    for other in (owner + 1, owner + 2):
        monkeypatch.setattr(os, "getpid", lambda other=other: other)
        for _ in range(2):
            assert first.folder == tmp_path / f"of-{other}"
            assert first.folder.is_dir()
        first.tell_refusal(ValueError(f"no {other}"))
        assert first.heard() == []
    monkeypatch.setattr(os, "getpid", lambda: owner)
    assert [(one.diagnostics, one.refused) for one in first.heard()] == [
        ([], f"no {owner + 1}"), ([], f"no {owner + 2}"),
    ]  # fmt: skip
    assert first.refusal() == f"no {owner + 1}"
    first.close()
    (tmp_path / f"{owner + 1}.told").unlink()
    assert len(first.heard()) == 2
