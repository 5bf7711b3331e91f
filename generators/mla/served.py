"""Says which version of the dense kernel the calls launch, from their own source."""

from __future__ import annotations

import re

from generators.model.site import Site
from mla_var3.errors import KnowledgeError
from mla_var3.knowledge.evidence import Link

#: The module whose kernels ``mla_var3.serving`` launches; the design is named by its folder.
SOURCE = "kernels/cute_python/mla/flash_mla/served.py"
#: Language and design of that folder.
DESIGN = ("cute-dsl", "flash_mla")
_IMPORTED = re.compile(r"^from \S+\.flash_mla_(v\d+)\.flash_mla_\1 import", re.MULTILINE)


def version(site: Site) -> str:
    """The version, as ``v24``.

    Raises:
        KnowledgeError: The source names none, or several.
    """
    named = set(_IMPORTED.findall((site.root / SOURCE).read_text(encoding="utf-8")))
    if len(named) != 1:
        raise KnowledgeError(f"{SOURCE} imports {len(named)} versions, needs exactly 1")
    return named.pop()


def kernel(site: Site) -> tuple[str, str, str] | None:
    """Language, design and version; None in a tree without the calls."""
    return (*DESIGN, version(site)) if (site.root / SOURCE).exists() else None


def text(site: Site, link: Link) -> str:
    """The version alone."""
    return version(site)
