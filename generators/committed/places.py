"""The place of a generated table in a hand-written page: between two lines that name it."""

from __future__ import annotations

from mla_var3.errors import KnowledgeError


def filled(page: str, old: str, begin: str, end: str, words: str) -> str:
    """The text of a page with other words between two of its lines.

    Args:
        page: What the page is called, for the error.
        old: Its text.
        begin: Line before the words.
        end: Line behind them.
        words: What stands there from now on.

    Raises:
        KnowledgeError: The page has no such lines.
    """
    before, first, rest = old.partition(begin)
    _, last, after = rest.partition(end)
    if not first or not last:
        raise KnowledgeError(f"{page} has no lines {begin} and {end}, between which a table stands")
    return f"{before}{begin}\n\n{words}\n\n{end}{after}"
