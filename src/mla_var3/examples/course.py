"""Renders a learning path and its steps as Markdown for the terminal; the site uses parts of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from mla_var3 import evidence
from mla_var3.examples import pin, show
from mla_var3.examples.learning import PATHS, Learning, LearningPath, Place, Step
from mla_var3.examples.model import PATTERN_TITLES
from mla_var3.languages.cute.facts import CuteFacts
from mla_var3.paths import kernels_dir
from mla_var3.runtime import registry
from mla_var3.static.occupancy import of_facts

COMMAND = "nox -s examples -- path"
SETUP = (
    "The commands run in a checkout of this project, after `pip install nox` and "
    "`nox -s examples -- fetch`. A check takes up to a minute or two."
)


def letter(name: str) -> str:
    """What a path is asked for by: its first word, in capitals."""
    return name.partition("-")[0].upper()


def overview(learning: Learning) -> str:
    """All paths."""
    rows = [
        f"- **{letter(name)}** {path.title} ({len(path.steps)} steps): {path.summary}"
        for name, path in learning.paths.items()
    ]
    return "\n".join(["# Learning paths", "", *rows, "", f"Begin with `{COMMAND} A`."])


def contents(learning: Learning, name: str) -> str:
    """A path: what it is for, and its steps."""
    path = learning.paths[name]
    rows = [
        f"{number}. {learning.title(step)}: {step.teaches}"
        for number, step in enumerate(path.steps, 1)
    ]
    needs = f"Know before: {', '.join(path.prerequisites)}." if path.prerequisites else ""
    first = f"Read the first step: `{COMMAND} {letter(name)} 1`."
    parts = [f"# {path.title}", path.summary, needs, path.primer, SETUP, "\n".join(rows), first]
    return "\n\n".join(filter(None, parts))


def step_text(root: Path, learning: Learning, name: str, number: int, answers: bool) -> str:
    """One step.

    Args:
        root: Top of the checkout.
        learning: All paths.
        name: Id of the path.
        number: Of the step, from 1.
        answers: Whether the answers of its questions are shown.
    """
    path = learning.paths[name]
    step = path.steps[number - 1]
    parts = [
        f"# {letter(name)}{number}. {learning.title(step)}",
        step.teaches,
        f"Read: {_subject(root, learning, step)}",
        "## What to look for",
        _list(step.look),
        "## In the source",
        _list(notes(root, learning, step)),
        "## What the compiler makes of it",
        *how(learning, step),
        _list(facts(root, learning, step)),
        "## The question",
        step.exercise.task,
        f"Choose: {', '.join(step.exercise.choices)}. Then let the command say: "
        f"`{COMMAND} {letter(name)} {number} --answer ANSWER` (it runs `{step.exercise.file}`).",
        "## Ask yourself too",
        *_questions(step, answers),
        "## What it teaches",
        _list(f"pattern `{each}`" for each in step.patterns),
        _next(learning, name, path, number),
    ]
    return "\n\n".join(parts) + "\n"


def _list(rows: Iterator[str] | tuple[str, ...] | list[str]) -> str:
    return "\n".join(f"- {row}" for row in rows)


def _subject(root: Path, learning: Learning, step: Step) -> str:
    if step.version is not None:
        return f"`{source_of(step.version)}`"
    example = learning.examples[step.example or ""]
    fetched = f"{pin.FOLDER}/{example.path}"
    path = fetched if (root / fetched).is_file() else example.path
    return f"`{path}` ({example.length} lines, for {example.arch}) <{example.address()}>"


def _questions(step: Step, answers: bool) -> Iterator[str]:
    for number, question in enumerate(step.questions, 1):
        yield f"{number}. {question.ask}"
        if answers:
            yield f"> {question.answer}"
    if not answers:
        yield "`--answers` shows the answers."


def _next(learning: Learning, name: str, path: LearningPath, number: int) -> str:
    if number < len(path.steps):
        following = learning.title(path.steps[number])
        return f"Next: `{COMMAND} {letter(name)} {number + 1}` ({following})."
    return f"This was the last step of this path; `{COMMAND}` lists all of them ({PATHS}/)."


def version_of(key: str) -> registry.Version:
    """The version that a step names.

    Raises:
        UnknownNameError: There is none such.
    """
    design, _, version = key.partition(" ")
    return registry.find(design, version)


def source_of(key: str) -> str:
    """The module of a version, from the top of the checkout."""
    return f"kernels/{version_of(key).path.relative_to(kernels_dir()).as_posix()}"


def place_of(root: Path, key: str, place: Place) -> tuple[str, int]:
    """File, from the top of the checkout, and line of a place in a version or in its kit.

    Args:
        root: Top of the checkout.
        key: The version.
        place: Its file, below the language's package, and the text; line 0 where none holds it.
    """
    source = source_of(key)
    if place.file is not None:
        source = f"kernels/{version_of(key).package}/{place.file}"
    file = root / source
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    return source, line_of(lines, place.find)


def notes(root: Path, learning: Learning, step: Step) -> list[str]:
    """What to see at which line of a step's subject."""
    if step.version is None:
        entries = learning.examples[step.example or ""]
        seen = [
            f"{PATTERN_TITLES[each.pattern]}: lines {', '.join(map(str, each.lines))}"
            for each in entries.checklist
        ]
        return [f"line {note.line}: {note.text}" for note in learning.notes(step)] or seen
    said = []
    for place in step.places:
        source, line = place_of(root, step.version, place)
        there = f"{source}, " if place.file else ""
        said.append(f"{there}line {line}: {place.text}")
    return said


def line_of(lines: list[str], text: str) -> int:
    """The first line that holds a text; 0 where none does, which lint reports."""
    return next((number for number, line in enumerate(lines, 1) if text in line), 0)


def how(learning: Learning, step: Step) -> list[str]:
    """What to know of the figures of a step: how they came about, and words of the path."""
    example = learning.examples.get(step.example or "")
    made = show.how(example) if example else ""
    return list(filter(None, [made and f"{made}.", step.compiled]))


def facts(root: Path, learning: Learning, step: Step) -> list[str]:
    """What compiling a step's subject gave: by the index for an example, by a record for ours."""
    if step.version is None:
        return show.compiled_lines(learning.examples[step.example or ""])
    version = version_of(step.version)
    made = evidence.find(
        root / "results", target="static/sm_90", language=version.language, design=version.design,
        version=version.version, mode="static",
    )  # fmt: skip
    rows = [row for record in evidence.newest(made)[:1] for row in _recorded(record)]
    design = f"{version.design} {version.version}"
    return rows or [f"No record yet: `nox -s profile -- {design} --lang={version.language}`."]


def _recorded(record: evidence.Record) -> Iterator[str]:
    for stage in getattr(record.outcome, "stages", ()):
        if isinstance(stage.static, CuteFacts):
            held = of_facts(stage.static) if stage.static.dynamic_shared_known else None
            room = f", {held.blocks_per_sm} per SM, limited by {held.limiter}" if held else ""
            yield f"`{stage.name}` for sm_90: {show.figures(stage.static)}{room}"
