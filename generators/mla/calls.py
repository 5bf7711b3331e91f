"""Says by which call of a server a design of MLA is launched, and what that call is given."""

from __future__ import annotations

from collections.abc import Mapping

from mla_var3.knowledge.evidence import Link
from mla_var3.runtime.registry import Version

#: Which version to take; the file stands for its page.
DECODE = "generators/mla/decode.py"
#: By design: page of the call, and words; ``{page}`` is its address.
CALLED: Mapping[str, tuple[str, str]] = {
    "flash_mla@cute-dsl": (
        "docs/serving/call.md",
        "**Which version to take, with every time beside FlashMLA's:** [decode on an H100 or H200]"
        "({which}). A server calls it as FlashMLA's `flash_mla_with_kvcache`: [each argument with "
        "its shape]"
        "({page}).",
    ),
    "sparse_mla": (
        "docs/serving/sparse.md",
        "A server calls it as [`flash_mla_with_kvcache` with `indices`]({page}), [b, s, k] in "
        "int32: each entry names a row of the cache as it lies, and -1 in a slot that you do not "
        "use stands for no token.",
    ),
}


#: What the names of tensors stand for, whichever of them a design has.
NAMES = (
    "q: queries, [absorbed]({absorbed}) where they are k wide; qpe: their rotary part; z: latent "
    "rows; kpe: rotary keys; lse: [log-sum-exp]({lse})."
)


def calls(versions: list[Version], link: Link) -> str:
    """What names of tensors stand for, and the call of a server that launches a design."""
    page, words = CALLED.get(versions[0].design_key, ("", ""))
    names = NAMES.format(
        absorbed=link("docs/glossary/absorbed-query.md"), lse=link("docs/glossary/lse.md")
    )
    if not page:
        return names
    return f"{names} {words.format(page=link(page), which=link(DECODE))}"
