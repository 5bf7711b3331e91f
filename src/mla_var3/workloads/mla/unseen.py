"""Keys that a query does not see, with scores far above those of all keys that it sees.

Whoever hides scores once the highest is known, or by adding a finite number, gives such a query no
weight at all. No other query has a part in the dimensions that make it. In bf16 one query's are
infinite, so that whoever adds minus infinity to hide them has NaN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

#: Such a score, what a key has in place of its part, and the dimensions: one each for the first
#: query and one in the middle, whose later keys a mask hides, and one for what else is hidden.
SCORE, KEY = 20_000.0, 32.0
#: What both parts of the second query's are in bf16: fp32 does not hold their product.
HUGE = 2.0**66
FIRST, MASKED = 8, 2
OTHER, END = FIRST + MASKED, FIRST + MASKED + 1


def asking(length: int) -> list[int]:
    """Of so many queries those that a causal mask hides high scores from."""
    return sorted({n for n in (0, length // 2) if n < length - 1})


def ask(queries: torch.Tensor, scale: float, *, causal: bool = True) -> None:
    """Make queries [..., s, d] those that would have the scores.

    Without a mask none is infinite: a kernel may take queries in fp16.
    """
    queries[..., FIRST:END] = 0.0
    part = SCORE / scale / KEY
    for number, query in enumerate(asking(queries.shape[-2])):
        queries[..., query, FIRST + number] = HUGE if causal and _is_huge(queries, number) else part
    queries[..., 0, OTHER] = part


def behind(keys: torch.Tensor, length: int, *, causal: bool = True) -> None:
    """Give keys [..., t, d] what such scores take, where the mask of so many queries hides them."""
    keys[..., FIRST:END] = 0.0
    for number, query in enumerate(asking(length) if causal else ()):
        later = length - 1 - query
        hidden = keys[..., max(keys.shape[-2] - later, 0) :, FIRST + number]
        hidden[...] = HUGE if _is_huge(keys, number) else KEY


def _is_huge(values: torch.Tensor, number: int) -> bool:
    """Whether the parts of a query's scores are so large, by its place among those that ask."""
    return number == 1 and str(values.dtype) == "torch.bfloat16"
