"""Random programs with branches, loops and predicates, against threads that run one by one."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import numpy as np
import pytest

from mla_var3.emulator.launcher import launch
from mla_var3.emulator.options import Options
from tests.emulator.steps import PREDICATES, REGISTERS, Effect, Thread, step

DEPTH = 2


def block(draw: random.Random, depth: int, names: Iterator[int]) -> tuple[list[str], Effect]:
    """Steps, among them branches over a block, to one of two, and loops."""
    text: list[str] = []
    effects: list[Effect] = []
    for _ in range(draw.randrange(2, 7)):
        kind = draw.random() if depth else 1.0
        if kind < 0.25:
            p, label, (inner, run) = (
                draw.randrange(PREDICATES),
                next(names),
                block(draw, depth - 1, names),
            )
            text += [f"@%p{p} bra L{label};", *inner, f"L{label}:"]
            effects.append(lambda t, p=p, run=run: None if t.p[p] else run(t))
        elif kind < 0.4:
            p, other, end = draw.randrange(PREDICATES), next(names), next(names)
            (one, first), (two, second) = (block(draw, depth - 1, names) for _ in range(2))
            text += [f"@%p{p} bra L{other};", *one, f"bra L{end};", f"L{other}:", *two, f"L{end}:"]
            effects.append(lambda t, p=p, a=first, b=second: b(t) if t.p[p] else a(t))
        elif kind < 0.5:
            k, label, (inner, run) = (
                draw.randrange(REGISTERS),
                next(names),
                block(draw, depth - 1, names),
            )
            count = f"%c{label}"
            text += [f"and.b32 {count}, %r{k}, 3;", f"L{label}:", *inner]
            text += [f"sub.u32 {count}, {count}, 1; setp.gt.s32 %z, {count}, 0; @%z bra L{label};"]
            effects.append(
                lambda t, k=k, run=run: [run(t) for _ in range(max(1, t.r[k] & 3))] and None
            )
        else:  # Unrolled, as compilers do: many alike may become one operation.
            for _ in range(draw.choice([1, 1, 5])):
                line, effect = step(draw)
                text.append(line)
                effects.append(effect)

    def everything(t: Thread) -> None:
        for effect in effects:
            effect(t)

    return text, everything


@pytest.mark.parametrize("seed", range(12))
def test_threads_together_do_what_each_does_alone(seed: int) -> None:
    draw, names = random.Random(seed), itertools.count()
    threads = draw.choice([32, 40, 96])
    text, run = block(draw, DEPTH, names)
    values = np.random.default_rng(seed).integers(0, 1 << 32, (REGISTERS, threads), np.uint64)
    values = np.where(values % 3 == 0, values, values & 63).astype(np.uint32)
    wanted = []
    for column in values.T.tolist():
        t = Thread(
            column, [a < b for a, b in itertools.pairwise(column[: PREDICATES + 1])], column[:4]
        )
        run(t)
        wanted.append([*t.r, *t.p])
    predicates = [
        f"selp.b32 %u, 1, 0, %p{i}; st.global.b32 [%out+{4 * threads * (REGISTERS + i)}], %u;"
        for i in range(PREDICATES)
    ]
    at = [f"%r{i}, [%in+{4 * threads * i}]" for i in range(REGISTERS)]
    kernel = f"""
        .version 8.6
        .target sm_90a
        .address_size 64
        .visible .entry kernel(.param .u64 a, .param .u64 b) {{
          .reg .b32 %r<{REGISTERS}>, %c<{next(names) + 1}>, %t, %u, %m;
          .reg .pred %p<{PREDICATES}>, %z; .reg .b64 %w, %in, %out;
          .shared .align 16 .b8 words[{16 * threads}];
          mov.u32 %t, %tid.x; mul.wide.u32 %w, %t, 4;
          ld.param.u64 %in, [a]; add.s64 %in, %in, %w;
          ld.param.u64 %out, [b]; add.s64 %out, %out, %w;
          mov.u32 %m, words; shl.b32 %u, %t, 4; add.u32 %m, %m, %u;
          {" ".join(f"ld.global.b32 {x};" for x in at)}
          {" ".join(f"st.shared.u32 [%m+{4 * i}], %r{i};" for i in range(4))}
          {" ".join(f"setp.lt.u32 %p{i}, %r{i}, %r{i + 1};" for i in range(PREDICATES))}
          {chr(10).join(text)}
          {" ".join(f"st.global.b32 [%out+{4 * threads * i}], %r{i};" for i in range(REGISTERS))}
          {" ".join(predicates)}
          ret;
        }}"""
    for schedule in (None, 1):
        out = np.zeros((REGISTERS + PREDICATES, threads), np.uint32)
        done = launch(kernel, [values, out], 1, threads, options=Options(seed=schedule))
        assert done.diagnostics == []
        np.testing.assert_array_equal(out.T, np.array(wanted, np.uint64).astype(np.uint32))
