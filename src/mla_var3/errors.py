"""Exception classes of the project: each message is one sentence with what is wrong and allowed."""

from __future__ import annotations

EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130
#: 128 + SIGPIPE, as a shell calls it.
EXIT_BROKEN_PIPE = 141


class HyperMlaError(Exception):
    """Base of every error a user can cause or meet; front ends print it and exit with code 2."""


class UnknownNameError(HyperMlaError):
    """A design, version, device, arch, pattern or other key that does not exist.

    Args:
        what: The kind of thing, for example ``"design"``.
        name: What was asked for.
        known: Every name that exists; the nearest one is suggested.
    """

    def __init__(self, what: str, name: str, known: list[str]) -> None:
        import difflib

        near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        listing = ", ".join(known) if known else "none exist"
        super().__init__(f"unknown {what} {name!r} (known: {listing}){hint}")
        self.what, self.name, self.known = what, name, known


class UsageError(HyperMlaError):
    """A command line that cannot be understood."""


class InputError(HyperMlaError):
    """A file, or what a tool printed, that cannot be read as what it should be.

    Args:
        name: The file.
        reason: What is wrong with it; the sentence goes on from the name.
    """

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)  # Both, so that it can be sent between processes.
        self.reason = reason

    def __str__(self) -> str:
        return " ".join(self.args)


class CallError(HyperMlaError):
    """An argument of a server's call that does not fit; names it, and says what does."""


class PlanError(HyperMlaError):
    """Problem sizes that make no sense together."""


class TilingError(HyperMlaError):
    """A tiling that its ``validate`` refuses; the message holds the arithmetic that failed."""


class InterpreterError(HyperMlaError):
    """A kernel that the interpreter refuses or cannot finish."""


class NotExecutableError(HyperMlaError):
    """A kernel that can be compiled but not run here: its language has no way to, without a GPU."""


class EmulatorError(HyperMlaError):
    """PTX, or a launch of it, that the emulator refuses or cannot finish."""


class ToolchainError(HyperMlaError):
    """A compiler, profiler or library that is missing or not the expected version."""


class DeviceFigureError(HyperMlaError):
    """A device figure that is UNKNOWN, or a device file that is not sound."""


class RecordError(HyperMlaError):
    """A record that cannot be read, written or compared."""


class KnowledgeError(HyperMlaError):
    """A knowledge file that cannot be read."""


class CloneError(HyperMlaError):
    """A kernel version that cannot be cloned."""
