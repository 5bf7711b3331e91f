"""Learning paths over annotated examples: ``knowledge/learning-paths`` and ``knowledge/examples``.

A path is a TOML file of ordered steps, each naming an example; an example is a TOML file that
points into a file of another repository at one commit, with words for its lines. Nothing of that
repository is copied.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mla_var3 import inputs
from mla_var3.errors import InputError, KnowledgeError
from mla_var3.examples.model import Example
from mla_var3.knowledge.schema import Id, Line

EXAMPLES, PATHS = "knowledge/examples", "knowledge/learning-paths"

Text = Annotated[str, Field(min_length=1)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Step(_Model):
    """One step of a path.

    Attributes:
        example: Id of an example: the stem of its file.
        teaches: What is learnt there.
        prerequisites: What to know before: ids of examples, or words.
    """

    example: Id
    teaches: Text
    prerequisites: tuple[Line, ...] = ()


class LearningPath(_Model):
    """Examples in the order in which they are best read.

    Attributes:
        title: One line.
        summary: Whom it takes where.
        prerequisites: What to know before: ids of paths, or words.
        steps: The steps in order.
    """

    title: Line = Field(max_length=90)
    summary: Text
    prerequisites: tuple[Line, ...] = ()
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

    def paths_through(self, example: str) -> list[str]:
        """Ids of the paths with a step at an example."""
        return [
            name
            for name, path in self.paths.items()
            if any(step.example == example for step in path.steps)
        ]


def load(root: Path) -> Learning:
    """Read the paths and examples of a checkout; empty when there are none.

    Raises:
        KnowledgeError: A file is not sound, or a step names no example; says which and where.
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
    for name, path in learning.paths.items():
        for number, step in enumerate(path.steps, 1):
            # An example that cannot be read has a fault of its own.
            if not (root / EXAMPLES / f"{step.example}.toml").is_file():
                faults.append(
                    (
                        f"{PATHS}/{name}.toml",
                        f"step {number} names the example {step.example!r}, but there is no "
                        f"{EXAMPLES}/{step.example}.toml",
                    )
                )
    return learning, faults


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
                faults.append((name, f"{where}: {row['msg']}"))
    return found
