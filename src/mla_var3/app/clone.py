"""Command ``clone``: starts a kernel version as a copy of another, with a devlog entry to fill in.

``python -m mla_var3.app.clone mla_var6_plus v4 v5`` has ``campaign.cloning`` copy the version's
package.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Annotated

import tyro

from mla_var3 import arguments, front
from mla_var3.arguments import named
from mla_var3.paths import relative
from mla_var3.runtime import registry
from mla_var3.runtime.registry import Version
from mla_var3.versions import number_of


def _asked(design: str, version: str, target: str | None) -> tuple[str, str, str]:
    """Design, source and target; in two words, the first of them says design and version."""
    if target is not None:
        return design, version, target
    name, at, language = design.partition("@")
    head, _, number = name.rpartition("_")
    if not re.fullmatch(r"v\d+", number):
        head, number = name, "v0"
    return head + at + language, number, version


def _left_out(source: Version, target: str) -> str | None:
    """What to say of numbers between the design's last version and the new one."""
    siblings = registry.select(source.qualified)
    last = max(number_of(v.version) for v in siblings if v.version != target)
    if number_of(target) <= last + 1:
        return None
    return f"the last version of {source.design} is v{last}: v{last + 1} would come next"


def main(argv: Sequence[str] | None = None) -> int:
    """Clone what ``argv`` (the process's by default) names; returns the exit code."""

    def run(
        design: Annotated[tyro.conf.Positional[str], named("DESIGN")],
        version: Annotated[tyro.conf.Positional[str], named("vN")],
        target: Annotated[tyro.conf.Positional[str | None], named("[vM]")] = None,
        lang: str | None = None,
    ) -> None:
        """Start a kernel version as a copy of another.

        Args:
            design: The design; DESIGN@LANGUAGE takes it in that language.
            version: The version to copy; v0 is the base.
            target: The number of the new version. DESIGN_vN vM, in two words, means the same.
            lang: Language, where the design exists in several.
        """
        name, number, wanted = _asked(design, version, target)
        from mla_var3.campaign.cloning import clone  # Slow to load, and help needs none.

        source = registry.find(name, number, lang)
        made = clone(source, wanted)
        others = registry.other_languages(source)
        if others and lang is None and "@" not in name:
            print(f"· taken from {source.language}; --lang takes {', '.join(others)}")
        if (note := _left_out(source, wanted)) is not None:
            print(f"· {note}")
        for path in made:
            print(relative(path))

    arguments.parse(run, sys.argv[1:] if argv is None else argv, "python -m mla_var3.app.clone")
    return 0


if __name__ == "__main__":
    front.run("mla_var3.app.clone:main")
