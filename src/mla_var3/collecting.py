"""Keeps Python's garbage collector away from imports of large libraries."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

#: Objects that come between two searches for garbage where these are seldom; Python has 700.
OBJECTS = 100_000
#: Whether what existed is out of the collector's sight, for good or while a block lasts. The
#: collector's own ``get_freeze_count`` walks over all of it: 47 ms under pytest.
_for_good = _for_a_while = False


def keep() -> None:
    """Take what exists for no garbage: it is never searched again."""
    global _for_good
    gc.freeze()
    _for_good = True


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Import large libraries inside this block.

    None of their some hundred thousand objects is garbage: none is searched meanwhile, and none of
    those that exist at the end is searched later.
    """
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        keep()
        if running:
            gc.enable()


@contextlib.contextmanager
def seldom() -> Iterator[None]:
    """Work that makes much, of which little is garbage in circles, inside this block.

    Garbage is searched each time that ``OBJECTS`` have come,
    not for every 700; a search after each problem costs more than it finds.
    """
    before = gc.get_threshold()
    gc.set_threshold(OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextlib.contextmanager
def unsearched() -> Iterator[None]:
    """Work for a while inside this block: what exists already is not searched for garbage in it."""
    global _for_a_while
    if _for_good or _for_a_while:
        yield
        return
    gc.freeze()
    _for_a_while = True
    try:
        yield
    finally:
        _for_a_while = False
        if not _for_good:
            gc.unfreeze()
