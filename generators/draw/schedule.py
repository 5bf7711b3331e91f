"""Draws a launch's schedule as SVG: SMs over time, full waves, the tail, and stages that wait.

Lengths are the times that a record states for each stage alone, or whole waves where nothing was
timed; how many SMs a stage takes follows from its grid and from how many blocks an SM holds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from generators.draw import shapes
from generators.draw.shapes import (
    BLUE,
    EDGE,
    ORANGE,
    PURPLE,
    QUIET,
    hatched,
    path,
    rect,
    text,
)
from generators.model import plans, targets
from generators.model.run import Run
from generators.model.site import Site
from generators.write import figures
from generators.write.text import cell, sections, us
from mla_var3.evidence import Stage
from mla_var3.knowledge.evidence import Link
from mla_var3.languages import find
from mla_var3.runtime import ConcurrentKernels, RuntimeObject
from mla_var3.runtime.registry import Version
from mla_var3.static.occupancy import of_facts

#: Counter of a trace: share of the busy time in which at least two kernels ran.
OVERLAP = "timeline__overlap_fraction"
#: Widths of the drawing on a page and on a phone, its height, and the room left of it.
WIDE, NARROW, HEIGHT, LEFT = 680, 350, 170, 44
#: So many waves are drawn one by one.
DRAWN_WAVES = 24


@dataclass(frozen=True)
class Lane:
    """One stage of a launch.

    Attributes:
        name: Path of the stage.
        blocks: Blocks of its grid.
        per_sm: Blocks that an SM holds at a time.
        us: Its time alone; None where nothing was timed.
        first: Number of its first SM.
        sms: SMs that it can use.
        start: When it starts, in the unit of the drawing.
    """

    name: str
    blocks: int
    per_sm: int
    us: float | None
    first: int
    sms: int
    start: float

    @property
    def waves(self) -> int:
        """Times that its SMs are filled."""
        return math.ceil(self.blocks / (self.sms * self.per_sm))

    @property
    def length(self) -> float:
        """Microseconds, or waves."""
        return self.us if self.us is not None else float(self.waves)

    @property
    def tail(self) -> int:
        """SMs that the last wave uses; all of them where it is full."""
        last = self.blocks - (self.waves - 1) * self.sms * self.per_sm
        return min(last, self.sms)

    @property
    def end(self) -> float:
        """When its last block ends."""
        return self.start + self.length

    @property
    def said(self) -> str:
        """Blocks, waves and time in words."""
        waves = f"{self.waves} waves" if self.waves > 1 else "1 wave"
        on = f"{self.tail} of {self.sms} SMs" if self.waves == 1 else f"{self.sms} SMs"
        parts = [f"{self.name}: {self.blocks:,} blocks on {on}, {waves}"]
        if self.waves > 1 and self.tail < self.sms:
            parts.append(f"the last one on {self.tail}")
        if self.us is not None:
            parts.append(us(self.us))
        return ", ".join(parts)


@dataclass(frozen=True)
class Schedule:
    """The lanes of one launch.

    Attributes:
        run: The record.
        sms: SMs of the device.
        lanes: Stages, in launch order.
        overlap: What a trace said about the busy time that kernels shared.
        from_plan: Whether a grid is the plan's, since the record holds none.
    """

    run: Run
    sms: int
    lanes: tuple[Lane, ...]
    overlap: float | None
    from_plan: bool

    @property
    def end(self) -> float:
        """When the last stage ends."""
        return max(lane.end for lane in self.lanes)

    @property
    def is_timed(self) -> bool:
        """Whether lengths are microseconds."""
        return all(lane.us is not None for lane in self.lanes)

    def waits(self) -> Iterator[tuple[Lane, float]]:
        """Lanes that end before one beside them, and for how long their SMs wait."""
        for lane in self.lanes:
            beside = [other.end for other in self.lanes if other.start == lane.start]
            if max(beside) > lane.end:
                yield lane, max(beside) - lane.end

    @property
    def tells(self) -> bool:
        """Whether it is more than one block that fills all SMs from start to end."""
        (first, *others) = self.lanes
        return bool(others) or first.waves > 1 or first.tail < self.sms

    @property
    def message(self) -> str:
        """What the picture shows, as sentences."""
        said = [f"{lane.said}." for lane in self.lanes]
        said += [
            f"{lane.sms} of {self.sms} SMs wait "
            f"{us(time) if self.is_timed else f'{time:g} waves'} after {lane.name}."
            for lane, time in self.waits()
        ]
        return " ".join(said)


# -- from records ----------------------------------------------------------------------------------


def schedule(site: Site, version: Version, telling: Run | None = None) -> Schedule | None:
    """The schedule of a version: from a trace, else from times, else from a grid alone.

    Args:
        site: What generators read.
        version: The version.
        telling: The run that is shown where several would do.
    """
    for run in _ordered(site.runs_of(version), telling):
        sms = _sms(run)
        stages = _with_grids(version, run) if sms else []
        if sms and stages:
            lanes = tuple(_lanes(site, version, run, stages, sms))
            overlap = next(filter(None, (stage.counters.get(OVERLAP) for stage in stages)), None)
            assert run.outcome is not None
            from_plan = any(not stage.grid for stage in run.outcome.stages)
            return Schedule(run, sms, lanes, overlap, from_plan)
    return None


def _with_grids(version: Version, run: Run) -> list[Stage]:
    """Stages of a run with the grid of each, from the plan where the record holds none.

    Empty where neither tells.
    """
    stages = list(run.outcome.stages) if run.outcome else []
    if not all(stage.grid for stage in stages):
        language = find(version.language)
        # A library compiles nothing here, and its plan tells no grid.
        planned = plans.kernels(version, run) if language.archs else {}
        stages = [
            stage.model_copy(update={"grid": language.grid(kernel)})
            for stage in stages
            if (kernel := planned.get(stage.name)) is not None
        ]
    return stages if all(stage.grid for stage in stages) else []


def _ordered(runs: Sequence[Run], telling: Run | None) -> Iterator[Run]:
    """Runs by preference; of those that are alike otherwise the one with the least work first."""
    alike: dict[tuple[int | bool, ...], list[Run]] = {}
    for run in runs:
        alike.setdefault(_preference(run, telling), []).append(run)
    for _, group in sorted(alike.items()):
        # To tell the work of a run plans it, which is done where it decides.
        yield from group if len(group) == 1 else sorted(group, key=_work)


def _preference(run: Run, telling: Run | None) -> tuple[int | bool, ...]:
    """Traces first, then times, then compiles; of each the telling, the fresh."""
    stages = run.outcome.stages if run.outcome else ()
    timed = bool(stages) and all(stage.duration is not None for stage in stages)
    kind = 0 if timed and run.record.mode == "nsys" else 1 if timed else 2
    return kind, run is not telling, -len(stages), run.stale


def _work(run: Run) -> tuple[float, str]:
    stages = run.outcome.stages if run.outcome else ()
    return sum(work.flops for stage in stages if (work := run.work_of(stage))), run.name


def _sms(run: Run) -> int | None:
    device = targets.device_of(run.record.target)
    return device.sm_count if device else None


def _lanes(
    site: Site, version: Version, run: Run, stages: Sequence[Stage], sms: int
) -> Iterator[Lane]:
    start = 0.0
    for group in _groups(stages, _side_by_side(version, run)):
        first, end = 0, start
        for stage in group:
            blocks, held = math.prod(stage.grid), _per_sm(site, version, run, stage)
            share = sms if len(group) == 1 else min(blocks, sms - first)
            time = stage.duration.median_us if stage.duration else None
            lane = Lane(stage.name, blocks, held, time, first, max(share, 1), start)
            yield lane
            first, end = first + share, max(end, lane.end)
        start = end


def _groups(stages: Sequence[Stage], together: set[str]) -> Iterator[list[Stage]]:
    """Stages that run side by side, each other one alone."""
    group: list[Stage] = []
    for stage in stages:
        parent = stage.name.rpartition(".")[0]
        if group and (parent not in together or group[0].name.rpartition(".")[0] != parent):
            yield group
            group = []
        group.append(stage)
    yield group


def _side_by_side(version: Version, run: Run) -> set[str]:
    """Paths of the groups of a plan whose stages have a stream each."""
    assert run.outcome is not None
    if not any("." in stage.name for stage in run.outcome.stages):
        return set()
    made = plans.bound(version, run)
    return set(_concurrent(made, "")) if made else set()


def _concurrent(node: RuntimeObject, path: str) -> Iterator[str]:
    if isinstance(node, ConcurrentKernels):
        yield path
    for child in getattr(node, "children", ()):
        yield from _concurrent(child, f"{path}.{child.name}".strip("."))


def _per_sm(site: Site, version: Version, run: Run, stage: Stage) -> int:
    """Blocks of a stage that an SM holds, by its compile for the same arch; 1 where none tells."""
    for other in site.runs_of(version):
        for compiled in other.outcome.stages if other.outcome else ():
            same = (compiled.kernel, compiled.tiling) == (stage.kernel, stage.tiling)
            if same and compiled.static and compiled.static.arch == run.record.arch:
                held = of_facts(compiled.static)
                return max(held.blocks_per_sm, 1) if held else 1
    return 1


# -- the drawing -----------------------------------------------------------------------------------


def section(site: Site, version: Version, telling: Run | None, link: Link) -> str:
    """The schedule of a version with where it comes from; empty where it tells nothing.

    That is where no grid is recorded, or where one wave fills the device.
    """
    found = schedule(site, version, telling)
    if found is None or not found.tells:
        return ""
    shown = shapes.responsive(lambda width: _draw(found, width), WIDE, NARROW)
    at = cell(site.problem_text(found.run))
    where = cell(targets.target_name(found.run.record.target))
    return sections(
        shapes.figure(shown, found.message + _whose_grid(found), kind="chart"),
        f"{where}, {at}: {figures.record_link(found.run, link, 'record')}. {_basis(found)}",
    )


def _whose_grid(found: Schedule) -> str:
    return " Blocks are from the plan: the record holds no grid." if found.from_plan else ""


def _basis(found: Schedule) -> str:
    """Where the lengths come from, in sentences."""
    if not found.is_timed:
        return (
            "Nothing was timed: the plan's grid alone, on the device that stands for the arch, "
            "each wave as long as the other."
        )
    basis = (
        "The plan's grid and the time of each stage alone, blocks of a stage taken as equal; "
        f"the whole launch took {us(found.run.total.median_us)}."
    )
    if found.overlap is not None:
        basis += (
            f" A trace of the launch says that kernels ran side by side for {found.overlap:.0%} "
            "of the busy time."
        )
    return basis


def _draw(found: Schedule, width: float) -> str:
    scale = (width - LEFT - 8) / found.end
    name = f"idle-{width:g}"  # Browsers take a pattern from a drawing that is shown only.
    idle = f"url(#{name})"
    parts = [hatched(name, QUIET), rect(LEFT, 8, found.end * scale, HEIGHT, idle)]
    colors = list(_colors(found))
    for lane, color in zip(found.lanes, colors, strict=True):
        parts += _boxes(found, lane, color, scale)
    parts += _axes(found, scale, width)
    for row, (lane, color) in enumerate(zip(found.lanes, colors, strict=True)):
        y = HEIGHT + 52 + 20 * row
        parts += [rect(LEFT, y - 10, 10, 10, color), text(LEFT + 16, y, _short(lane), size=12)]
    y = HEIGHT + 52 + 20 * len(found.lanes)
    parts += [rect(LEFT, y - 10, 10, 10, idle), text(LEFT + 16, y, "idle", size=12)]
    height = HEIGHT + 64 + 20 * len(found.lanes)
    return shapes.svg(width, height, parts, "Schedule of one launch", found.message)


def _short(lane: Lane) -> str:
    time = f", {us(lane.us)}" if lane.us is not None else ""
    waves = f" in {lane.waves} waves" if lane.waves > 1 else ""
    return f"{lane.name}: {lane.blocks:,} blocks{waves}{time}"


def _colors(found: Schedule) -> Iterator[str]:
    """The first stage, what runs beside another one, what follows."""
    for place, lane in enumerate(found.lanes):
        yield ORANGE if lane.first else PURPLE if place and lane.start else BLUE


def _boxes(found: Schedule, lane: Lane, color: str, scale: float) -> Iterator[str]:
    """The waves of a stage: full ones, and the last as high as the SMs that it uses."""
    each = lane.length / lane.waves
    drawn = lane.waves <= DRAWN_WAVES
    full = lane.waves - 1 if lane.waves > 1 else 0
    gap = 1 if drawn and each * scale > 4 else 0
    for wave in range(full if drawn else min(full, 1)):
        long = each if drawn else each * full
        yield _box(found, lane, lane.start + wave * each, long, lane.sms, color, scale, gap)
    yield _box(found, lane, lane.end - each, each, lane.tail, color, scale, gap)


def _box(
    found: Schedule, lane: Lane, start: float, long: float, sms: int, color: str, scale: float,
    gap: float,
) -> str:  # fmt: skip
    unit = HEIGHT / found.sms
    x, width = LEFT + start * scale, max(long * scale - gap, 0.6)
    return rect(round(x, 1), round(8 + lane.first * unit, 1), round(width, 1),
                round(sms * unit, 1), color, lane.said)  # fmt: skip


def _axes(found: Schedule, scale: float, width: float) -> Iterator[str]:
    yield text(LEFT - 6, 18, f"{found.sms}", anchor="end", fill=QUIET, size=11)
    yield text(LEFT - 6, 32, "SMs", anchor="end", fill=QUIET, size=11)
    bottom = 8 + HEIGHT
    yield path([(LEFT, bottom), (width - 8, bottom)], EDGE)
    step = _step(found.end, 4 if width > NARROW else 2)
    for tick in range(int(found.end / step) + 1):
        unit = " us" if found.is_timed else " waves"
        words = f"{tick * step:g}{unit if tick else ''}"
        yield text(LEFT + tick * step * scale, bottom + 16, words, anchor="middle", fill=QUIET,
                   size=11)  # fmt: skip


def _step(end: float, ticks: int) -> float:
    """The least round step that makes at most so many ticks."""
    power = 10 ** math.floor(math.log10(end / ticks))
    return next(power * factor for factor in (1, 2, 5, 10) if end / (power * factor) <= ticks)
