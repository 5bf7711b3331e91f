"""Runs an exercise's script of a learning path and compares its answer with the reader's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from mla_var3 import forked
from mla_var3.errors import KnowledgeError
from mla_var3.examples.learning import Exercise

#: Seconds that a script may take; the slowest compiles a kernel and runs it in the emulator.
TIMEOUT_S = 600.0


def computed(root: Path, exercise: Exercise, timeout: float = TIMEOUT_S) -> str:
    """The answer, as the script works it out here and now.

    Args:
        root: Top of the checkout.
        exercise: The exercise.
        timeout: Seconds the script may take.

    Raises:
        KnowledgeError: The script fails, takes too long or says nothing.
    """
    try:
        done = subprocess.run(
            [sys.executable, str(root / exercise.file)],
            capture_output=True, encoding="utf-8", errors="replace", check=False, timeout=timeout,
            env={**os.environ, "HYPERMLA_ROOT": str(root)}, preexec_fn=forked.die_with_parent,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise KnowledgeError(f"{exercise.file} did not end within {timeout:g} s") from error
    if done.returncode:
        raise KnowledgeError(f"{exercise.file} failed: {_last(done.stderr) or done.returncode}")
    if not (said := _last(done.stdout)):
        raise KnowledgeError(f"{exercise.file} printed no answer")
    return said


def same(given: str, right: str) -> bool:
    """Whether two answers say the same: as numbers where both are, else as words."""
    return _plain(given) == _plain(right)


def _plain(answer: str) -> float | str:
    words = " ".join(answer.split()).casefold()
    try:
        return float(words.replace(",", "").replace("_", "").replace(" ", ""))
    except ValueError:
        return words


def _last(text: str) -> str:
    """Last line that is not empty, without the name of an exception's class."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1].removeprefix("mla_var3.errors.") if lines else ""
