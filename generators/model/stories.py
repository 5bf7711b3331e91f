"""Reads stories of a design's versions, steps with text, code and figures, from their files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from mla_var3 import inputs
from mla_var3.errors import KnowledgeError

FOLDER = "knowledge/stories"
#: Lines of code that a step may show.
MOST_LINES = 20

Words = Annotated[str, Field(min_length=1)]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Trace(_Model):
    """A launch that is emulated and put on a clock.

    Attributes:
        key: Its name.
        version: The version.
        problem: Fields of the plan.
        tiling: Fields of the tiling.
        sms: SMs of the device that it is planned for; 0 where they are the reference device's.
    """

    key: Words
    version: Words
    problem: dict[str, Any]
    tiling: dict[str, Any] = {}
    sms: Annotated[int, Field(ge=0)] = 0


class Panel(_Model):
    """Lanes of one trace in a picture.

    Attributes:
        trace: Its key.
        title: What stands above them.
        lanes: Which, from the top.
        around: ``start``, ``end`` (of the last product), ``middle`` or ``all``.
        before: Cycles shown before that.
        after: Cycles shown behind.
        tiles: Whether bars carry the number of their tile, and lines show what is handed over.
    """

    trace: Words
    title: str = ""
    lanes: tuple[Words, ...]
    around: Words = "all"
    before: int = 0
    after: int = 0
    tiles: bool = False


class Picture(_Model):
    """Panels on one axis of time.

    Attributes:
        title: Its message.
        caption: What to see in it.
        panels: From the top.
    """

    title: Words
    caption: Words
    panels: tuple[Panel, ...]


class Excerpt(_Model):
    """Lines of a source.

    Attributes:
        file: Path from the top of the checkout.
        first: Text that its first line holds; it stands once in ``within``, or in the file.
        within: Name of a function or a class.
        lines: How many.
        marked: Texts of the lines that matter.
    """

    file: Words
    first: Words
    within: str = ""
    lines: Annotated[int, Field(ge=1, le=MOST_LINES)]
    marked: tuple[Words, ...] = ()


class Note(_Model):
    """A word or a side note beside the text.

    Attributes:
        title: What it is about.
        text: A sentence or two.
        failed: Whether it tells of an idea that failed.
    """

    title: Words
    text: Words
    failed: bool = False


class Step(_Model):
    """One idea.

    Attributes:
        version: The version that has it.
        design: Its design, where it is not the story's.
        title: The verdict.
        short: The idea in a few words, for the axis and home.
        text: Paragraphs.
        badge: What the outcome is called; empty where there is nothing to say.
        tone: ``faster``, ``slower`` or ``neutral``.
        outcome: What failed on the way, or what the step did not bring.
        notes: Words and side notes.
        pictures: Pictures.
        code: Title of the code, and its excerpts.
        excerpts: Of at most 20 lines in all.
        schedule: Whether the launch over time is shown, as its records tell it.
    """

    version: Words
    design: str = ""
    title: Words
    short: Words
    text: Words
    badge: str = ""
    tone: Words = "neutral"
    outcome: str = ""
    notes: tuple[Note, ...] = ()
    pictures: tuple[Picture, ...] = ()
    code: str = ""
    excerpts: tuple[Excerpt, ...] = ()
    schedule: bool = False

    @property
    def key(self) -> str:
        """Its name in the story: the version, with its design where that is not the story's."""
        return f"{self.design.replace('_', '-')}-{self.version}" if self.design else self.version


class Part(_Model):
    """Text before or behind the steps.

    Attributes:
        key: Its anchor.
        title: Its heading.
        text: Paragraphs.
        notes: Words and side notes.
    """

    key: Words
    title: Words
    text: Words
    notes: tuple[Note, ...] = ()


class Story(_Model):
    """A story.

    Attributes:
        key: Name of its page.
        design: The design, as users type it.
        peer: Key of the design whose time is 1; empty where it is the first step's.
        problem: The problem at which all times are.
        title: With ``{first}`` and ``{last}`` for times.
        nav: Its title in the navigation.
        lead: What it is about.
        same: How it compares with the peer at one and the same task; empty where steps do that.
        needs: What a reader knows.
        conditions: What is said once about the measurements.
        traces: What pictures are made of.
        before: Parts before the steps.
        steps: The steps.
        after: Parts behind them.
        next: Links at the end: words and file.
        beside: Versions of the design that the text compares, beyond the steps'.
        command: What takes all times again.
    """

    key: Words
    design: Words
    peer: str = ""
    problem: dict[str, Any]
    title: Words
    nav: Words
    lead: Words
    same: str = ""
    needs: Words
    conditions: tuple[Words, ...]
    traces: tuple[Trace, ...] = ()
    before: tuple[Part, ...] = ()
    steps: tuple[Step, ...]
    after: tuple[Part, ...] = ()
    next: tuple[tuple[Words, Words], ...] = ()
    beside: tuple[Words, ...] = ()
    command: str = ""

    def label(self, step: Step) -> str:
        """A step's version, with a word of its design where that is not the story's."""
        own = step.design.removeprefix(self.design).strip("_").partition("_")[0]
        return f"{own} {step.version}" if own else step.version

    def trace(self, key: str) -> Trace:
        """The trace of that name.

        Raises:
            KnowledgeError: There is none.
        """
        for trace in self.traces:
            if trace.key == key:
                return trace
        raise KnowledgeError(
            f"{FOLDER}/{self.key}.toml has a picture of {key!r}, which is no trace"
        )


def load_all(root: Path) -> list[Story]:
    """The stories of a checkout, by name of their files.

    Raises:
        KnowledgeError: A file is not sound.
    """
    stories = []
    for path in sorted((root / FOLDER).glob("*.toml")):
        name = f"{FOLDER}/{path.name}"
        with inputs.faults_as(KnowledgeError, name):
            story = Story.model_validate(inputs.read_toml(path))
        if story.key != path.stem:
            raise KnowledgeError(f"{name}: its key is {story.key!r}, not {path.stem!r}")
        _hold(story, name)
        stories.append(story)
    return stories


def _hold(story: Story, name: str) -> None:
    for step in story.steps:
        shown = sum(excerpt.lines for excerpt in step.excerpts)
        if shown > MOST_LINES:
            raise KnowledgeError(
                f"{name}: {step.version} shows {shown} lines of code, more than {MOST_LINES}"
            )
