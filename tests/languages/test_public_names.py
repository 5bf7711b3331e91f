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
        (Thing, PublicName("class", "(size=3, *, mode=Mode.ON)", ("grow(self, by)", "size"))),
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
