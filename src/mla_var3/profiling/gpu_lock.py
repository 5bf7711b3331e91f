"""Lock per GPU that one profiling run at a time holds, so that no other disturbs its times."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from mla_var3.errors import ToolchainError

#: Seconds to wait for another run; a bench of many versions takes minutes.
PATIENCE_S = 1800.0


def gpu_uuid() -> str:
    """UUID of torch's current GPU."""
    import torch

    return str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)


@contextlib.contextmanager
def held(say: Callable[[str], None], patience_s: float = PATIENCE_S) -> Iterator[None]:
    """Within this block no other process of this machine profiles on torch's current GPU.

    The kernel of the operating system holds the lock, so it ends with its process, however that
    ends. A process that holds it may ask again.

    Args:
        say: Told when somebody else has it.
        patience_s: Seconds to wait.

    Raises:
        ToolchainError: Another run still has it.
    """
    gpu = gpu_uuid()
    lock = FileLock(
        Path(tempfile.gettempdir(), f"hypermla-{gpu}.lock"), mode=0o666, is_singleton=True
    )
    try:
        lock.acquire(timeout=0)
    except Timeout:
        say(f"another profiling run has GPU {gpu}; waiting for it")
        _wait(lock, gpu, patience_s)
    try:
        yield
    finally:
        lock.release()


def _wait(lock: FileLock, gpu: str, patience_s: float) -> None:
    try:
        lock.acquire(timeout=patience_s)
    except Timeout:
        raise ToolchainError(
            f"another profiling run has had GPU {gpu} for {patience_s:g} s ({lock.lock_file})"
        ) from None
