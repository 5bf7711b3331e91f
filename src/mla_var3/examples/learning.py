"""Reads learning paths from ``knowledge/learning-paths/<path>.toml``, and their schema.

A step is about one example of the pinned tree or one version of this project. Nothing of another
repository is copied: notes point at its lines. Exercises are scripts in ``exercises/`` beside the
paths; each computes its answer and prints it on its last line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from mla_var3 import inputs
from mla_var3.errors import InputError, KnowledgeError, UnknownNameError
from mla_var3.examples.model import Annotation, Example, Line, Text

EXAMPLES, PATHS = "knowledge/examples", "knowledge/learning-paths"
EXERCISES = f"{PATHS}/exercises"

Id = Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=60)]
VersionKey = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*(@[a-z][a-z0-9-]*)? v(0|[1-9][0-9]*)$")]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Question(_Model):
    """A question to answer before reading on.

    Attributes:
        ask: The question; the example, or what was learnt before, answers it.
        answer: The answer, which readers see when they ask for it.
    """

    ask: Text
    answer: Text


class Place(_Model):
    """Words for a place in a source of this project.

    Attributes:
        find: Text that stands once in the file: its lines move, so none is named.
        file: Where it stands, below the language's package, ``kit/turns.py``; by default in the
            version's module.
        text: What to see there.
    """

    find: Line
    file: Line | None = None
    text: Text


class Exercise(_Model):
    """Something to work out, and the script that tells whether it is right.

    Attributes:
        task: What to work out, as a question.
        choices: Answers to choose from, the right one among them.
        script: File below ``exercises/``; its last line of output is the answer.
        answer: What it prints; a test holds the two together.
        why: How one comes to it.
    """

    task: Text
    script: str = Field(pattern=r"^[a-z0-9]+(_[a-z0-9]+)*\.py$", max_length=80)
    choices: tuple[Line, ...] = Field(min_length=2)
    answer: Line
    why: Text

    @model_validator(mode="after")
    def _can_be_chosen(self) -> Self:
        if self.answer not in self.choices:
            raise ValueError(f"the answer {self.answer!r} is not among the choices")
        return self

    @property
    def file(self) -> str:
        """The script, from the top of the checkout."""
        return f"{EXERCISES}/{self.script}"


class Step(_Model):
    """One step of a path.

    Attributes:
        example: Id of an example: the stem of its file.
        version: Or a version of this project, such as ``hopper_gemm@cute-dsl v0``.
        teaches: What is learnt there.
        prerequisites: What to know before: ids of examples, or words.
        look: What to look for.
        questions: To answer before reading on.
        places: Words for places of a version; an example's notes lie with the example.
        compiled: What to know of the compiled code's figures.
        patterns: Pages that say more of what the step shows, by id.
        exercise: What to work out at the end.
        found_by: What readers say who look for what it shows.
    """

    example: Id | None = None
    version: VersionKey | None = None
    teaches: Text
    prerequisites: tuple[Line, ...] = ()
    look: tuple[Text, ...] = Field(min_length=1)
    questions: tuple[Question, ...] = Field(min_length=1)
    places: tuple[Place, ...] = ()
    compiled: Text | None = None
    patterns: tuple[Id, ...] = Field(min_length=1)
    exercise: Exercise
    found_by: tuple[Line, ...] = ()

    @model_validator(mode="after")
    def _one_subject(self) -> Self:
        if (self.example is None) == (self.version is None):
            raise ValueError("a step is about an example or about a version, one of the two")
        if self.places and self.example:
            raise ValueError("places are of a version; an example's notes lie in its own file")
        return self


class LearningPath(_Model):
    """Steps in the order in which they are best taken.

    Attributes:
        title: One line.
        summary: Whom it takes where.
        prerequisites: What to know before: ids of paths, or words.
        primer: What a reader of the first step may not know, in words.
        found_by: What readers say who look for it.
        steps: The steps in order.
    """

    title: Line = Field(max_length=90)
    summary: Text
    prerequisites: tuple[Line, ...] = ()
    primer: Text | None = None
    found_by: tuple[Line, ...] = ()
    steps: tuple[Step, ...] = Field(min_length=1)


@dataclass(frozen=True)
class Learning:
    """All paths and examples, by id.

    Attributes:
        paths: Learning paths.
        examples: Examples, also those that no path names.
    """

    paths: Mapping[str, LearningPath]
    examples: Mapping[str, Example]

    def steps(self) -> Iterator[tuple[str, int, Step]]:
        """Every step with the id of its path and its number from 1."""
        for name, path in self.paths.items():
            for number, step in enumerate(path.steps, 1):
                yield name, number, step

    def paths_through(self, example: str) -> list[str]:
        """Ids of the paths with a step at an example."""
        return list(
            dict.fromkeys(name for name, _, step in self.steps() if step.example == example)
        )

    def steps_on(self, pattern: str) -> list[tuple[str, int]]:
        """Path and number of the steps that show a pattern."""
        return [(name, number) for name, number, step in self.steps() if pattern in step.patterns]

    def title(self, step: Step) -> str:
        """What a step is about, in words."""
        if step.example is None:
            return str(step.version)
        found = self.examples.get(step.example)
        return found.title if found else step.example

    def notes(self, step: Step) -> tuple[Annotation, ...]:
        """Words for lines of a step's example, by line."""
        found = self.examples.get(step.example or "")
        return tuple(sorted(found.annotations, key=lambda note: note.line)) if found else ()

    def find(self, asked: str) -> str:
        """Id of the path that is asked for by id, or by its first word, as in ``A``.

        Raises:
            UnknownNameError: There is none such.
        """
        wanted = asked.lower()
        for name in self.paths:
            if wanted in (name, name.partition("-")[0]):
                return name
        raise UnknownNameError("path", asked, list(self.paths))


def load(root: Path) -> Learning:
    """Read the paths and examples of a checkout; empty when there are none.

    Raises:
        KnowledgeError: A file is not sound, or a step names what is not there; says which and
            where.
    """
    learning, faults = read(root)
    for file, message in faults:
        raise KnowledgeError(f"{file}: {message}")
    return learning


def read(root: Path) -> tuple[Learning, list[tuple[str, str]]]:
    """The sound paths and examples of a checkout, and what is wrong with the others.

    Args:
        root: Top of the checkout; it may have neither.

    Returns:
        What could be read, and file and sentence of each fault.
    """
    faults: list[tuple[str, str]] = []
    learning = Learning(
        _read(root, PATHS, LearningPath, faults), _read(root, EXAMPLES, Example, faults)
    )
    faults += [
        (f"{PATHS}/{name}.toml", f"step {number} {message}")
        for name, number, step in learning.steps()
        for message in _missing(root, step)
    ]
    return learning, faults


def _missing(root: Path, step: Step) -> Iterator[str]:
    """What a step names and the checkout lacks; an unsound example has a fault of its own."""
    example = f"{EXAMPLES}/{step.example}.toml"
    if step.example is not None and not (root / example).is_file():
        yield f"names the example {step.example!r}, but there is no {example}"
    if not (root / step.exercise.file).is_file():
        yield f"names an exercise, but there is no {step.exercise.file}"


Item = TypeVar("Item", bound=BaseModel)


def _read(
    root: Path, folder: str, model: type[Item], faults: list[tuple[str, str]]
) -> dict[str, Item]:
    found = {}
    for file in sorted((root / folder).glob("*.toml")):
        name = f"{folder}/{file.name}"
        try:
            found[file.stem] = model.model_validate(inputs.read_toml(file))
        except InputError as error:
            faults.append((name, error.reason))
        except ValidationError as error:
            for row in error.errors():
                where = ".".join(map(str, row["loc"])) or "the file"
                faults.append((name, f"{where:.200}: {row['msg']:.300}"))
    return found
