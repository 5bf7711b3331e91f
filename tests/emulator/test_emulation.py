"""What kernels an emulation keeps lowered."""

import pytest

from mla_var3.emulator import emulation
from mla_var3.errors import EmulatorError


@pytest.mark.parametrize(("variables", "shared"), [("", True), (".global .u32 kept;", False)])
def test_a_lowered_kernel_is_shared_unless_it_holds_memory(variables: str, shared: bool) -> None:
    place = "mov.u64 %rd1, kept;" if variables else "mov.u64 %rd1, 0;"
    text = (
        f".version 8.0\n.target sm_90\n.address_size 64\n{variables}\n"
        f".visible .entry kernel()\n{{\n.reg .b64 %rd<2>;\n{place}\nret;\n}}\n"
    )
    first, again = (emulation._program(text, "kernel") for _ in range(2))
    assert bool(first.storage) is not shared
    assert (first is again) is shared


def test_what_stopped_a_launch_is_raised_in_place_of_what_came_of_it() -> None:
    """Host code that was told of a failure ends with an error of its own."""
    with pytest.raises(KeyError), emulation.emulating():
        raise KeyError("its own")

    def stopped() -> None:
        with emulation.emulating() as now:
            now.failure = EmulatorError("stopped")
            raise KeyError("its own")

    with pytest.raises(EmulatorError, match="stopped") as caught:
        stopped()
    assert isinstance(caught.value.__cause__, KeyError)
    with emulation.emulating(), pytest.raises(EmulatorError, match="active already"):
        emulation.emulating().__enter__()
    assert emulation.active() is None
