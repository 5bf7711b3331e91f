"""Waits for the GPU with a time limit, and ends the process when a launch hangs.

A hung kernel cannot be canceled: CUDA has no call that ends it short of the end of its process. So
the process first says why in one sentence, and keeps a record if the caller asks for one.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import NoReturn

from mla_var3.errors import UsageError

#: Seconds that one wait may take, unless the variable says otherwise.
LIMIT_S = 120.0
VARIABLE = "HYPERMLA_HANG_SECONDS"
EXIT_HUNG = 1  # As for a wrong kernel: the kernel is at fault, not the input.

_last_words: list[Callable[[str], None]] = []


def limit_s() -> float:
    """Seconds that one wait for the GPU may take.

    Raises:
        UsageError: The variable is not a number above zero.
    """
    said = os.environ.get(VARIABLE, "")
    with contextlib.suppress(ValueError):
        if (seconds := float(said or LIMIT_S)) > 0:
            return seconds
    raise UsageError(f"{VARIABLE}={said}: not a number of seconds above 0")


@contextlib.contextmanager
def last_words(say: Callable[[str], None]) -> Iterator[None]:
    """Within this block, ``say`` is told why the process ends, before a hung launch ends it."""
    _last_words.append(say)
    try:
        yield
    finally:
        _last_words.remove(say)


def synchronize() -> None:
    """Wait for all launches on torch's current GPU; end the process if they do not end."""
    import torch

    seconds = limit_s()
    watchdog = threading.Timer(seconds, _give_up, [seconds])
    watchdog.daemon = True
    watchdog.start()
    try:
        torch.cuda.synchronize()
    finally:
        watchdog.cancel()


def _give_up(seconds: float) -> NoReturn:
    reason = f"a launch has not ended after {seconds:g} s ({VARIABLE} allows longer)"
    try:
        for say in reversed(_last_words):
            say(reason)
    finally:
        print(f"error: {reason}", file=sys.stderr, flush=True)
        os._exit(EXIT_HUNG)
