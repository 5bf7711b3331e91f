"""What host code asks of a GPU while it is traced, answered without one."""

from __future__ import annotations

from collections.abc import Callable

from mla_var3.devices import default_for_arch

#: Bytes of an H200's L2 cache, for who asks (knowledge/devices).
L2 = 50 << 20


def stand_in(multiprocessors: Callable[[], int]) -> None:
    """Answer in place of the driver, for the rest of this process.

    Args:
        multiprocessors: Gives the SMs of the GPU that is told of; called when host code asks.
    """
    from cutlass.utils.hardware_info import HardwareInfo

    answers: dict[str, Callable[..., int | None]] = {
        "__init__": lambda *_: None,
        "get_max_active_clusters": lambda size, *_: multiprocessors() // size,
        "get_device_multiprocessor_count": multiprocessors,
        "get_l2_cache_size_in_bytes": lambda: L2,
    }
    # In the class itself: examples have imported it by name.
    for name, answer in answers.items():
        setattr(HardwareInfo, name, _method(answer))


def _method(answer: Callable[..., int | None]) -> Callable[..., int | None]:
    return lambda _self, *args, **_: answer(*args)


def stand_in_of(arch: str) -> None:
    """Answer as the device that stands for an arch."""
    stand_in(lambda: default_for_arch(arch).machine("bf16").sm_count)
