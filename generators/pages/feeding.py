"""Says on a design's page what its kernels are given, what they give back, and who calls them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

from generators.model import fits
from generators.model.site import Site
from generators.write.text import code, sections
from mla_var3.knowledge.evidence import Link
from mla_var3.knowledge.markdown import neutralise
from mla_var3.runtime.registry import Version

TITLE = "What you feed it"
#: How a problem's docstring begins to say what it takes.
_INPUTS = re.compile(r"^Inputs?:.*?(?=\n\n|\Z)", re.DOTALL | re.MULTILINE)


def section(site: Site, versions: list[Version], link: Link) -> str:
    """Inputs and outputs with their shapes and types, by versions; empty where no problem says.

    They stand in the docstring of the problem that a version computes, beside the code that makes
    them.
    """
    found: dict[str, list[Version]] = {}
    for version in versions:
        if said := inputs_of(version):
            found.setdefault(said, []).append(version)
    if not found:
        return ""
    first, alone = versions[0], len(found) == 1
    rows = [
        ("" if alone else f"**{fits.spans(versions, own)}.** ") + said
        for said, own in found.items()
    ]
    told = rows[0] if alone else "\n".join(f"- {row}" for row in rows)
    axes = link(f"kernels#{first.layer}")
    analysis = site.analyses.get(first.layer)
    calls = analysis.calls(versions, link) if analysis else ""
    return sections(
        f"## {TITLE} {{ #feed }}",
        told,
        " ".join(
            filter(
                None,
                [
                    f"Letters are [sizes]({axes}#axes): flags of the commands.",
                    calls,
                    f"Run on inputs of these shapes, without a GPU: "
                    f"{code(f'nox -s check -- {first.design_key} {versions[-1].version}')}.",
                ],
            )
        ),
    )


def inputs_of(version: Version) -> str:
    """What a version's problem says of its tensors, as Markdown; empty where it says nothing."""
    return next(_said(version.plan_class()), "")


def _said(plan: type) -> Iterator[str]:
    for kind in plan.__mro__:
        if (text := kind.__dict__.get("__doc__")) and (
            match := _INPUTS.search(inspect.cleandoc(text))
        ):
            plain = " ".join(match.group().split()).replace("``", "`")
            yield neutralise(re.sub(r"^(Inputs?):", r"**\1:**", plain)
                             .replace(" Outputs: ", " **Outputs:** ")
                             .replace(" Output: ", " **Output:** "))  # fmt: skip
