"""Problems that say from which context on chosen tokens are read sooner than all of them."""

from __future__ import annotations

import itertools
from typing import Any

#: Heads, sequences and contexts; tokens that sparse decode reads of each.
HEADS, SEQUENCES, CONTEXTS = (128, 64), (32, 128), tuple(2048 << i for i in range(6))
KEPT = 2048
#: Tokens of a page of the dense cache.
PAGE = 64


def dense_or_sparse_set() -> list[dict[str, Any]]:
    """Each context dense over pages in bf16, then sparse over rows in fp8, as fields of a plan.

    The largest come last.
    """
    sizes = itertools.product(CONTEXTS, SEQUENCES, HEADS)
    return [
        {"b": b, "s": 1, "h": h, "t": t, **form}
        for t, b, h in sorted(sizes, key=lambda size: size[0] * size[1])
        for form in ({"page": PAGE}, {"topk": KEPT})
    ]
