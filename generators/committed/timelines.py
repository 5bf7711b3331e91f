"""Writes committed timelines of stories' versions: emulates each and replays it on a clock.

``python -m generators.committed.timelines [KEY ...]`` compiles and runs the versions here, which
takes about a minute each, and writes ``knowledge/stories/timelines``.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro

from generators.model import stories
from generators.model.timelines import FOLDER, Bar, Timeline, code_of
from mla_var3 import arguments, front
from mla_var3.errors import KnowledgeError
from mla_var3.paths import repo_root, write_atomic
from mla_var3.runtime import registry

#: What a warp is at, by the file of the source and maybe the function; what is not here is other.
WORK = {
    "softmax.rescale": "rescale",
    "softmax": "softmax",
    "piece_epilogue": "merge",
    "dsmem": "merge",
    "l2": "merge",
    "epilogue.exchange": "merge",
    "joined.leave": "merge",
    "merge": "merge",
    "short.take": "merge",
    "staged": "merge",
    "stores": "store",
    "epilogue.store": "store",
    "paged.put": "store",
    "paged.send": "store",
}
#: Cycles below which something belongs to what is around it.
SHORT = 40
#: Lanes by the first warp of a CTA; loading warps have one each.
GROUPS = {0: "left", 4: "right"}


def made(key: str, story: stories.Story, root: Path) -> Timeline:
    """Emulate a trace's version and put it on a clock."""
    from mla_var3.emulator import Options
    from mla_var3.languages.cute import emulation
    from mla_var3.languages.cute.kernel import CuteKernel

    wanted = story.trace(key)
    version = registry.find(story.design, wanted.version)
    plan = version.plan_of(wanted.problem)
    if wanted.sms:
        smaller = dataclasses.replace(plan.target, sm_count=wanted.sms)
        plan = dataclasses.replace(plan, machine=smaller)
    kernels = [kernel for _, kernel in plan.plan(*plan.prepare_inputs("cpu")).stages()]
    kernel = kernels[0]
    if not isinstance(kernel, CuteKernel):
        raise KnowledgeError(f"{version.design_key} {version.version} is not emulated")
    kernel.tiling = dataclasses.replace(kernel.tiling, **wanted.tiling)
    host, values = kernel.host()
    outputs = tuple(kernel.output_tensors.values())
    options = Options(timeline=True, checks=False)
    _, run = emulation.emulate(kernel.name, host, values, outputs, options)
    return drawn(run.launches[-1], wanted, code_of(version, root), story.design)


def drawn(launch: Any, wanted: stories.Trace, code: str, design: str) -> Timeline:
    """A launch as lanes."""
    from mla_var3.emulator.replay import Replay

    kernel = launch.counts.program.kernel
    replay = Replay(launch.trace, kernel.instructions)
    at = [_place(kernel, i) for i in kernel.instructions]
    ctas = 1 + max((span.cta for span in replay.spans), default=0)
    loaded, terms = [0] * ctas, [0] * ctas
    lanes: dict[str, list[Bar]] = defaultdict(list)
    for span in replay.spans:
        if (lane := _lane(span.cta, span.warp)) is None:
            continue
        if span.what == "product":
            terms[span.cta] += span.last
            what = "scores" if at[span.pc].endswith("scores") else "output"
            lanes[lane].append((what, round(span.start), round(span.end)))
        elif span.what in ("load", "store", "wait"):
            across = kernel.instructions[span.pc].op.startswith("st.async")
            what = "send" if across else span.what
            lanes[lane].append((what, round(span.start), round(span.end)))
        else:
            lanes[lane] += _work(span, replay.table, at)
    for (cluster, warp), steps in launch.trace.steps.items():
        del warp
        for step in steps:
            if step.kind == "copy":
                loaded[cluster * _ctas_of_cluster(launch) + step.cta] += step.amount
    return Timeline(
        version=f"{design} {wanted.version}",
        problem=wanted.problem,
        tiling=wanted.tiling,
        code=code,
        cycles=round(replay.end),
        lanes={name: tuple(_joined(bars)) for name, bars in sorted(lanes.items())},
        loaded=tuple(loaded),
        terms=tuple(terms),
    )


def _ctas_of_cluster(launch: Any) -> int:
    x, y, z = launch.cluster
    return int(x * y * z)


def _lane(cta: int, warp: int) -> str | None:
    """The lane of a warp; one warp of four stands for its warpgroup."""
    if warp in GROUPS:
        return f"{cta} {GROUPS[warp]}"
    return f"{cta} load {warp - 7}" if warp >= 8 else None


def _work(span: Any, table: Sequence[tuple[float, float, float]], at: Sequence[str]) -> list[Bar]:
    """A run of instructions, cut where another kind of work begins."""
    shares = [i + m for i, m, _ in table[span.pc : span.last]]
    scale = (span.end - span.start) / (sum(shares) or 1.0)
    bars: list[Bar] = []
    start = span.start
    for pc, share in zip(range(span.pc, span.last), shares, strict=True):
        what, end = _kind(at[pc]), start + share * scale
        if bars and (bars[-1][0] == what or not at[pc]):
            bars[-1] = (bars[-1][0], bars[-1][1], round(end))
        else:
            bars.append((what, round(start), round(end)))
        start = end
    return bars


def _kind(place: str) -> str:
    return WORK.get(place) or WORK.get(place.partition(".")[0]) or "other"


def _joined(bars: Iterable[Bar]) -> Iterator[Bar]:
    """Bars in order; work that touches is one, and what is short joins what is before it."""
    products = [bar for bar in bars if bar[0] in ("scores", "output")]
    copies = [bar for bar in bars if bar[0] in ("load", "send")]
    rest = sorted((bar for bar in bars if bar not in products and bar not in copies),
                  key=lambda bar: bar[1])  # fmt: skip
    yield from _merged(sorted(products, key=lambda bar: bar[1]), gap=2, short=0)
    yield from _merged(sorted(copies, key=lambda bar: bar[1]), gap=0, short=0)
    yield from _merged(rest, gap=SHORT, short=SHORT)


def _merged(bars: Iterable[Bar], gap: int, short: int) -> Iterator[Bar]:
    held: Bar | None = None
    for what, start, end in bars:
        if held is None:
            held = (what, start, end)
            continue
        near = start - held[2] <= gap
        small = end - start < short and what != "rescale"
        if near and (what == held[0] or small):
            held = (held[0], held[1], max(end, held[2]))
        elif near and held[2] - held[1] < short and held[0] in ("other", "wait"):
            held = (what, held[1], end)
        else:
            yield held
            held = (what, start, end)
    if held is not None:
        yield held


def _place(kernel: Any, instruction: Any) -> str:
    """File and function of an instruction, such as ``softmax.rescale``; empty where it has none."""
    file, line = kernel.place(instruction)
    if not file or not line or not Path(file).is_file():
        return ""
    starts, names = _functions(file)
    found = [
        name for (first, last), name in zip(starts, names, strict=True) if first <= line <= last
    ]
    return f"{Path(file).stem}.{found[-1]}" if found else Path(file).stem


@functools.cache
def _functions(file: str) -> tuple[list[tuple[int, int]], list[str]]:
    """First and last lines of the functions of a file, outer ones first, and their names."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    nodes = [n for n in ast.walk(ast.parse(Path(file).read_text())) if isinstance(n, kinds)]
    nodes.sort(key=lambda node: node.lineno)
    return [(n.lineno, n.end_lineno or n.lineno) for n in nodes], [n.name for n in nodes]


def text(timeline: Timeline) -> str:
    """A timeline as its file holds it, a lane per line."""
    held = json.loads(timeline.model_dump_json())
    lanes = held.pop("lanes")
    head = json.dumps(held, indent=1)[:-2]
    rows = ",\n".join(f'  "{name}": {json.dumps(bars)}' for name, bars in lanes.items())
    return f'{head},\n "lanes": {{\n{rows}\n }}\n}}\n'


def write(keys: Annotated[tuple[str, ...], tyro.conf.Positional]) -> None:
    """Make timelines.

    Args:
        keys: Which; all by default.
    """
    root = repo_root()
    found = {t.key: story for story in stories.load_all(root) for t in story.traces}
    if unknown := sorted(set(keys) - found.keys()):
        raise KnowledgeError(f"no story has {', '.join(unknown)}; known: {', '.join(found)}")
    for key in keys or found:
        write_atomic(root / FOLDER / f"{key}.json", text(made(key, found[key], root)))
        print(f"wrote {FOLDER}/{key}.json")


def main(argv: Sequence[str] | None = None) -> int:
    """Make those that ``argv`` names; returns the exit code."""
    import sys

    arguments.parse(write, sys.argv[1:] if argv is None else argv, "generators.committed.timelines")
    return 0


if __name__ == "__main__":
    front.run("generators.committed.timelines:main")
