"""Host code that asks a GPU for its SMs is compiled where there is none."""

from __future__ import annotations

import pytest

from mla_var3 import forked
from mla_var3.devices import default_for_arch
from mla_var3.errors import UnknownNameError
from mla_var3.languages.cute import hardware
from tests.languages.cute.conftest import needs_dsl

pytestmark = needs_dsl


def asked(arch: str) -> tuple[int, int]:
    """SMs, and clusters of four, in a process whose driver is stood in for."""
    hardware.stand_in_of(arch)
    from cutlass import utils

    found = utils.HardwareInfo()
    return found.get_device_multiprocessor_count(), found.get_max_active_clusters(4)


@pytest.mark.parametrize("arch", ["sm_90", "sm_100"])
def test_the_device_of_the_arch_answers(arch, tmp_path):
    work = {arch: lambda: asked(arch)}
    ((_, ended),) = forked.run(work, folder=tmp_path, workers=1, timeout=60.0, explain=repr)
    sms = default_for_arch(arch).machine("bf16").sm_count
    assert ended.result == (sms, sms // 4)


def test_nothing_is_looked_up_before_it_is_asked(tmp_path):
    def of_no_device() -> str:
        hardware.stand_in_of("sm_35")
        from cutlass import utils

        found = utils.HardwareInfo()
        with pytest.raises(UnknownNameError):
            found.get_device_multiprocessor_count()
        return "asked"

    work = {0: of_no_device}
    ((_, ended),) = forked.run(work, folder=tmp_path, workers=1, timeout=60.0, explain=repr)
    assert ended.result == "asked"
