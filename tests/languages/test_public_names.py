from __future__ import annotations

import enum
import typing

import pytest

from mla_var3.errors import ToolchainError
from mla_var3.languages import public_names
from mla_var3.languages.public_names import PublicName


class Mode(enum.Enum):
    ON = 1


class Thing:
    def __init__(self, size: int = 3, *, mode: Mode = Mode.ON, loc: object = None) -> None: ...

    def grow(self, by: int, ip: object = None) -> None: ...

    @property
    def size(self) -> int:
        return 0

    def _hidden(self) -> None: ...


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (Mode, PublicName("enum", members=("ON",))),
        (
            Thing,
            PublicName(
                "class", "(size=3, *, mode=Mode.ON)", ("grow(self, by)", "size"), ("mode: Mode",)
            ),
        ),
        (lambda x, kind=int: x, PublicName("function", "(x, kind=int)")),
        (3, PublicName("value")),
        (typing.Annotated[int, "x"], PublicName("value")),
    ],
)
def test_a_name_is_told_without_its_authors_words(value: object, told: PublicName) -> None:
    assert public_names.read(value) == told


def test_a_name_is_found_below_the_module_that_its_first_part_stands_for():
    assert public_names.find("p.Path.cwd", {"p": "pathlib"}).__name__ == "cwd"
    with pytest.raises(ToolchainError, match=r"pathlib has no p\.Road"):
        public_names.find("p.Road", {"p": "pathlib"})


def chosen(
    sem: typing.Literal["weak", "strong"] | None,
    mode: Mode,
    stages: typing.Literal[1, 2] = 1,
    other: int = 0,
) -> Mode:
    return mode


def test_what_a_parameter_takes_is_read_of_its_annotation():
    assert public_names.read(chosen).choices == (
        'sem: "weak", "strong"', "mode: Mode", "stages: 1, 2",
    )  # fmt: skip


def test_an_annotation_that_only_a_checker_knows_says_nothing(monkeypatch):
    monkeypatch.setattr(chosen, "__annotations__", {"mode": "Nowhere"})
    assert public_names.read(chosen).choices == ()
