"""Keeps Python's garbage collector away from imports of large libraries."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


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
        gc.freeze()
        if running:
            gc.enable()


@contextlib.contextmanager
def unsearched() -> Iterator[None]:
    """Work for a while inside this block: what exists already is not searched for garbage in it."""
    if gc.get_freeze_count():  # By ``uncollected``, or by a block around this one.
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
