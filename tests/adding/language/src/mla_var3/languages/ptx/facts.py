"""What ptxas made of a kernel, beside what all languages have."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from mla_var3.evidence.facts import StaticFacts


class PtxFacts(StaticFacts):
    """Facts of a kernel in PTX.

    Attributes:
        language: The language's key.
        ptx_lines: Lines of the text.
    """

    language: Literal["ptx"] = "ptx"
    ptx_lines: int = Field(0, ge=0)
