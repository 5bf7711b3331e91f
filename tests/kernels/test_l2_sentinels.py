"""Sentinels in L2: what is written is never taken for what is not there yet."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("cutlass", reason="needs nvidia-cutlass-dsl")

SCRIPT = """\
import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack

from mla_var3.kernel.cute_python.kit.l2_sentinels import (
    EMPTY, NAN, any_empty, clear, get, put,
)


@cute.kernel
def probe(x: cute.Tensor, places: cute.Tensor, seen: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    at = cute.domain_offset((4 * thread,), places).iterator
    words = cute.make_rmem_tensor(4, cutlass.Int32)
    get(at, words)
    seen[thread, 0] = cutlass.Int32(any_empty([words]))
    values = cute.make_rmem_tensor(4, cutlass.Float32)
    for i in cutlass.range_constexpr(4):
        values[i] = x[thread, i]
    put(at, values)
    get(at, words)
    seen[thread, 1] = cutlass.Int32(any_empty([words]))
    for i in cutlass.range_constexpr(4):
        seen[thread, 2 + i] = words[i]
    clear(at, 4)


@cute.jit
def host(x: cute.Tensor, places: cute.Tensor, seen: cute.Tensor):
    probe(x, places, seen).launch(grid=(1, 1, 1), block=(32, 1, 1))


bits = torch.randint(-(2**31), 2**31, (32, 4), dtype=torch.int64).to(torch.int32)
bits[0] = EMPTY
for place in range(4):
    bits[1 + place, place] = EMPTY
bits[5] = torch.tensor([0, -(2**31), 0x7F800000, NAN], dtype=torch.int32)
places = torch.full((128,), EMPTY, dtype=torch.int32)
seen = torch.zeros(32, 6, dtype=torch.int32)
host(from_dlpack(bits.view(torch.float32)), from_dlpack(places), from_dlpack(seen))
assert seen[:, 0].all(), "a place was not empty"
assert not seen[:, 1].any(), "a word that was written is empty"
assert torch.equal(seen[:, 2:], torch.where(bits == EMPTY, NAN, bits)), "a value was changed"
assert (places == EMPTY).all(), "a place is not empty again"
"""


def test_what_is_written_is_never_empty(tmp_path: Path):
    script = tmp_path / "probe.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "mla_var3.emulator", "run", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "0 findings" in done.stdout
