"""Parses command lines by tyro, and turns an error of tyro's into one sentence.

tyro 1.0.17 tells what is wrong with a line under no public name: ``tyro.cli`` prints a box and
exits. So the hook of its module ``_errors`` is used, and tyro is bounded to the versions that have
it.
"""

from __future__ import annotations

import contextlib
import difflib
import io
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tyro
from tyro import _errors as events

from mla_var3.errors import UnknownNameError, UsageError

HELP = ("--help", "-h")
#: Characters of a value that a message repeats.
MAX_VALUE = 40


def named(name: str) -> Any:
    """The mark that gives a positional argument the name that the help shows."""
    optional = name.endswith(("]", "..."))
    return tyro.conf.arg(metavar=name, help_behavior_hint="" if optional else None)


def parse(target: Any, argv: Sequence[str], prog: str, description: str | None = None) -> Any:
    """What ``tyro.cli`` makes of ``argv``.

    Args:
        target: Dataclass to fill from the arguments, or function to call with them.
        argv: The arguments.
        prog: Name in the help.
        description: First paragraph of the help; the target's docstring by default.

    Raises:
        SystemExit: ``--help`` was asked for; code 0.
        UsageError: An argument is unknown, missing, empty or of the wrong type.
    """

    def read(arguments: Sequence[str]) -> Any:
        return tyro.cli(
            target, prog=prog, description=description, args=arguments, use_underscores=True
        )

    def flags() -> list[str]:
        text = io.StringIO()
        with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
            read(["--help"])
        return re.findall(r"--(\w[\w.]*)", text.getvalue())

    def refuse(event: events.ParseErrorEvent) -> None:
        if said := _sentence(event, argv, flags):
            raise UsageError(" ".join(f"{said}; see {prog} --help".split()))

    for argument in argv:
        if not argument or re.fullmatch(r"--[\w.-]+=", argument):
            raise UsageError(f"{argument or 'an argument'} is empty; see {prog} --help")
    if twice := _twice(argv):
        raise UsageError(f"--{twice} is given twice; see {prog} --help")
    with events.on_parse_error(refuse):
        return read(argv)


def _twice(argv: Sequence[str]) -> str | None:
    """The first flag that gets a value more than once, of which one would be ignored."""
    seen = set()
    for argument in argv:
        if not (found := re.match(r"--(\w[\w.-]*)(?:=|$)", argument)):
            continue
        if (name := found[1].replace("-", "_")) in seen:
            return name
        seen.add(name)
    return None


def _sentence(
    event: events.ParseErrorEvent, argv: Sequence[str], flags: Callable[[], list[str]]
) -> str | None:
    """What is wrong; None for a kind of event that is not known here."""
    match event:
        case events.UnrecognizedArgs(tokens=[token, *_]):
            for argument in argv:
                if argument.startswith("--") and argument.endswith(f"={token}"):
                    return f"{argument.partition('=')[0]} takes no value, and {token!r} is given"
            if not token.startswith("-"):
                return f"{token!r} is one argument too many"
            flag = token.partition("=")[0]
            near = difflib.get_close_matches(flag.strip("-"), flags(), n=1)
            return f"unknown flag {flag}" + (f" (did you mean --{near[0]}?)" if near else "")
        case events.MissingArgs():
            names = [str(missing.arg.lowered.metavar) for missing in event.missing_arguments]
            return f"{' and '.join(names)} must be given"
        case events.BadValue():
            return f"{event.argument.display_name()} needs a value"
        case events.InvalidChoice(argument=argument):
            return _misunderstood(argument.display_name(), argv, sorted(event.choices))
        case events.InstantiationFailure(argument=argument) if argument is not None:
            allowed = re.sub("[{}]", "", str(argument.lowered.metavar)).split("|")
            return _misunderstood(argument.display_name(), argv, allowed)
    return None


def _misunderstood(flag: str, argv: Sequence[str], allowed: Sequence[str]) -> str:
    """Sentence that the last value of ``flag`` in ``argv`` is not allowed, with those that are."""
    value = ""
    for argument, after in zip(argv, [*argv[1:], ""], strict=True):
        name, equals, given = argument.partition("=")
        if name.replace("-", "_") == flag.replace("-", "_"):
            value = given if equals else after
    short = value if len(value) <= MAX_VALUE else f"{value[:MAX_VALUE]}..."
    return f"{flag}={short} is not understood (allowed: {', '.join(allowed)})"


def choose(
    commands: Mapping[str, Callable[..., int | None]], argv: Sequence[str], prog: str
) -> tuple[Callable[..., int | None], Sequence[str], str]:
    """The command that ``argv`` names, the arguments after it, and its name in the help.

    Args:
        commands: Functions by name.
        argv: The arguments.
        prog: Name in the help.

    Raises:
        SystemExit: ``--help`` was asked for; code 0.
        UsageError: No command is named.
        UnknownNameError: There is no such command.
    """
    if not argv:
        raise UsageError(f"a command must be given: {', '.join(commands)}")
    name, *rest = argv
    if name in HELP:
        print(f"usage: {prog} COMMAND [--help]\n")
        for name, command in commands.items():
            print(f"  {name:<12}{(command.__doc__ or '').splitlines()[0]}")
        raise SystemExit(0)
    if name not in commands:
        raise UnknownNameError("command", name, list(commands))
    return commands[name], rest, f"{prog} {name}"
