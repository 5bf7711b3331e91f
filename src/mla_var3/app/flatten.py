"""Command ``flatten``: prints a version as one file, its own code and what it takes from the kit.

``python -m mla_var3.app.flatten flash_mla@cute-dsl v12`` prints what ``runtime.flattening`` makes.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import tyro

from mla_var3 import arguments, front
from mla_var3.arguments import named
from mla_var3.runtime import registry
from mla_var3.runtime.flattening import flatten


def main(argv: Sequence[str] | None = None) -> int:
    """Print what ``argv`` (the process's by default) names; returns the exit code."""

    def run(
        design: Annotated[tyro.conf.Positional[str], named("DESIGN")],
        version: Annotated[tyro.conf.Positional[str | None], named("[VERSION]")] = None,
        lang: str | None = None,
    ) -> None:
        """Print a version as one file that needs nothing else below kernels/.

        Args:
            design: The design; DESIGN@LANGUAGE takes it in that language.
            version: The version; v0, the base, by default.
            lang: Language, where the design exists in several.
        """
        print(flatten(registry.find(design, version, lang)), end="")

    arguments.parse(run, sys.argv[1:] if argv is None else argv, "python -m mla_var3.app.flatten")
    return 0


if __name__ == "__main__":
    front.run("mla_var3.app.flatten:main")
