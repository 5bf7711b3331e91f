# ruff: noqa: E501  # A PTX statement stays on its line.
"""Straight-line PTX on columns of numbers: one thread per element."""

from __future__ import annotations

import numpy as np

from mla_var3.emulator.clusters import Launch
from mla_var3.emulator.launcher import launch
from mla_var3.emulator.options import Options

CODE = {1: "b8", 2: "b16", 4: "b32", 8: "b64"}


def evaluate(body: str, inputs: list[np.ndarray], out: type, options=None) -> np.ndarray:
    """What ``run`` writes."""
    return run(body, inputs, out, options)[0]


def run(
    body: str, inputs: list[np.ndarray], out: type, options: Options | None = None
) -> tuple[np.ndarray, Launch]:
    """Run ``body``, which reads ``%i0``, ``%i1``, ... and writes ``%o``; registers are as wide.

    Scratch registers: ``%p<8>``, ``%r<16>``, ``%rd<16>``, ``%h<16>``.
    """
    n = len(inputs[0])
    result = np.zeros(n, out)
    names = [f"a{i}" for i in range(len(inputs))]
    parameters = ", ".join(f".param .u64 {x}" for x in [*names, "o"])
    declared, loads = [], []
    for i, (x, name) in enumerate(zip(inputs, names, strict=True)):
        declared.append(f".reg .{CODE[x.itemsize]} %i{i};")
        loads.append(
            f"ld.param.u64 %q1, [{name}]; mul.wide.u32 %q2, %t, {x.itemsize}; add.u64 %q1, %q1, %q2; "
            f"ld.global.{CODE[x.itemsize]} %i{i}, [%q1];"
        )
    width = result.itemsize
    text = (
        f".version 8.8\n.target sm_90a\n.address_size 64\n.visible .entry s({parameters})\n{{\n"
        ".reg .pred %p<8>; .reg .b32 %r<16>; .reg .b64 %rd<16>; .reg .b16 %h<16>; .reg .b32 %t; "
        f".reg .b64 %q1; .reg .b64 %q2; .reg .{CODE[width]} %o; {' '.join(declared)}\n"
        f"mov.u32 %t, %tid.x; {' '.join(loads)}\n{body}\n"
        f"ld.param.u64 %q1, [o]; mul.wide.u32 %q2, %t, {width}; add.u64 %q1, %q1, %q2; "
        f"st.global.{CODE[width]} [%q1], %o;\nret;\n}}\n"
    )
    done = launch(text, [*inputs, result], 1, n, options=options)
    assert not done.diagnostics, done.diagnostics[0]
    return result, done
