"""Parses version names on command lines, such as ``flash_mla@cute-dsl v12``, and their language."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from mla_var3.runtime import registry
from mla_var3.runtime.registry import Version


def value_of(flag: str, argv: Sequence[str]) -> str | None:
    """The value of a flag that must be known before the others can be read."""
    for argument, after in itertools.zip_longest(argv, argv[1:]):
        name, equals, value = argument.partition("=")
        if name == flag:
            return value if equals else after
    return None


def language_note(version: Version, asked: str | None) -> str | None:
    """Sentence that names the language taken of several; None where one was asked for."""
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
