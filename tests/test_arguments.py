from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import pytest
import tyro
from hypothesis import given
from hypothesis import strategies as st

from mla_var3.arguments import choose, named, parse
from mla_var3.errors import UnknownNameError, UsageError


@dataclass
class Options:
    """Words of the help."""

    size: int = 1
    kind: Literal["one", "two"] = "one"
    limit: int | None = None
    loud: bool = False
    tile_size: int = 16


def show(
    name: Annotated[tyro.conf.Positional[str], named("NAME")],
    other: Annotated[tyro.conf.Positional[str], named("OTHER")],
    rest: Annotated[tyro.conf.Positional[tuple[str, ...]], named("[REST ...]")] = (),
) -> list[str]:
    """Show something.

    Args:
        name: The first.
        other: The second.
        rest: More of them.
    """
    return [name, other, *rest]


def test_arguments_are_read():
    assert parse(Options, ["--size=3", "--tile-size", "8", "--loud"], "x") == Options(
        size=3, tile_size=8, loud=True
    )
    assert parse(show, ["a", "b", "c"], "x") == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--bogus=1"], "unknown flag --bogus"),
        (["--siz=1"], "unknown flag --siz (did you mean --size?)"),
        (["--title_size", "1"], "unknown flag --title_size (did you mean --tile_size?)"),
        (["-x"], "unknown flag -x"),
        (["--size=x"], "--size=x is not understood (allowed: INT)"),
        (["--size", "x"], "--size=x is not understood (allowed: INT)"),
        (["--size=2", "--size=1.5"], "--size is given twice"),
        (["--tile-size=2", "--tile_size", "2"], "--tile_size is given twice"),
        (["--tile-size=x"], "--tile_size=x is not understood (allowed: INT)"),
        (["--size=" + "9" * 5000], f"--size={'9' * 40}... is not understood (allowed: INT)"),
        (["--limit=x"], "--limit=x is not understood (allowed: None, INT)"),
        (["--kind=tow"], "--kind=tow is not understood (allowed: one, two)"),
        (["--size"], "--size needs a value"),
        (["--loud=maybe"], "--loud takes no value, and 'maybe' is given"),
        (["stray"], "'stray' is one argument too many"),
        (["--size="], "--size= is empty"),
        (["--size", ""], "an argument is empty"),
    ],
)
def test_a_malformed_command_line_is_one_sentence(argv, said, capsys):
    with pytest.raises(UsageError) as error:
        parse(Options, argv, "prog x")
    assert str(error.value) == f"{said}; see prog x --help"
    assert capsys.readouterr() == ("", "")


flags = st.sampled_from(["--size", "--kind", "--limit", "--loud", "--tile-size", "--no_loud", "-"])
words = flags | st.text(st.characters(codec="utf-8")) | st.sampled_from(["1", "two", "None"])


@given(st.lists(words | st.builds("{}={}".format, flags, words), max_size=5))
def test_any_words_are_read_or_refused_in_one_sentence(argv):
    try:
        said = str(parse(Options, argv, "x"))
    except UsageError as error:
        said = str(error)
    assert said.startswith("Options(") or said.endswith("; see x --help")
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize(
    ("argv", "said"), [([], "NAME and OTHER must be given"), (["a"], "OTHER must be given")]
)
def test_what_is_missing_is_named_as_in_the_help(argv, said):
    with pytest.raises(UsageError, match=f"^{said}; see x --help$"):
        parse(show, argv, "x")


def test_help_shows_the_names_of_positional_arguments(capsys):
    with pytest.raises(SystemExit) as end:
        parse(show, ["--help"], "prog show")
    assert not end.value.code
    out = capsys.readouterr().out
    assert "usage: prog show [-h] NAME OTHER [REST ...]" in out
    assert "default:" not in out


class TestChoose:
    COMMANDS: ClassVar = {"show": show, "list": parse}

    def test_the_named_command_and_what_follows(self):
        assert choose(self.COMMANDS, ["show", "a", "--b"], "p") == (show, ["a", "--b"], "p show")

    def test_help_lists_all(self, capsys):
        with pytest.raises(SystemExit) as end:
            choose(self.COMMANDS, ["--help"], "p")
        assert end.value.code == 0
        assert "  show        Show something.\n" in capsys.readouterr().out

    def test_none_or_an_unknown_one(self):
        with pytest.raises(UsageError, match=r"^a command must be given: show, list$"):
            choose(self.COMMANDS, [], "p")
        with pytest.raises(UnknownNameError, match=r"unknown command 'shwo' .*did you mean 'show'"):
            choose(self.COMMANDS, ["shwo"], "p")
