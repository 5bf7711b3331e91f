"""Says which of several designs of one name, each in a language of its own, a page is about."""

from __future__ import annotations

from generators.model.columns import language_title
from generators.model.site import Site
from generators.write.source import repo_name
from generators.write.text import cell, code, sections
from mla_var3.knowledge.evidence import Link
from mla_var3.runtime.registry import Version


def which(site: Site, versions: list[Version], link: Link) -> str:
    """The design of a page and those of its name; empty where no other has it.

    Args:
        site: All inputs.
        versions: Those of the page's design.
        link: How the page addresses files.
    """
    first = versions[0]
    others = [
        f"[{cell(own[0].design_key)}]({link(repo_name(own[0].path.parents[1]))}) is another, in "
        f"{cell(language_title(own[0].language))}"
        for own in site.designs().values()
        if own[0].design == first.design and own[0].language != first.language
    ]
    if not others:
        return ""
    analysis = site.analyses.get(first.layer)
    return sections(
        f"**Which one this is:** {code(first.design_key)}, in "
        f"{cell(language_title(first.language))}. {', '.join(others)}."
        + (f" {analysis.languages(link)}" if analysis else "")
    )
