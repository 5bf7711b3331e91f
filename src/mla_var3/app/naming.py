"""How versions are named on command lines, and how figures are compared in words."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from mla_var3.runtime import registry
from mla_var3.runtime.registry import Version

#: Times closer than this are not told apart: a median repeats within about half a percent.
EQUAL = 0.005


def value_of(flag: str, argv: Sequence[str]) -> str | None:
    """The value of a flag that must be known before the others can be read."""
    for argument, after in itertools.zip_longest(argv, argv[1:]):
        name, equals, value = argument.partition("=")
        if name == flag:
            return value if equals else after
    return None


def language_note(version: Version, asked: str | None) -> str | None:
    """That a design exists in several languages and which was taken, unless one was asked for."""
    others = registry.other_languages(version)
    if asked is not None or not others:
        return None
    return (
        f"{version.design} exists in {', '.join([version.language, *others])}: taking "
        f"{version.language} (--lang={others[0]} takes another)"
    )


def asked_language(design: str, lang: str | None) -> str | None:
    """The language that a name or ``--lang`` asks for."""
    return lang or design.partition("@")[2] or None


def faster(time_us: float, than_us: float) -> str:
    """``1.8x faster`` or ``2.1x slower`` than the other; both of one run."""
    ratio = than_us / time_us
    if abs(ratio - 1) <= EQUAL:
        return "as fast"
    factor, word = (ratio, "faster") if ratio > 1 else (1 / ratio, "slower")
    return f"{factor:.{2 if factor < 1.1 else 1}f}x {word}"
