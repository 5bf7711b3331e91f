"""Tensor maps in memory: what is read of one that a thread changes in between."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mla_var3.emulator.regions import Region
from mla_var3.emulator.units.maps import Maps
from mla_var3.emulator.units.tensormap import TensorMap, tiled
from mla_var3.emulator.windows import PARAM_WINDOW, SHARED_START
from mla_var3.errors import EmulatorError
from tests.emulator.machines import machine

MAP = tiled(1 << 40, (64, 32), (2, 128), (16, 8), "f16")
BASE = 1 << 30


def ready(start: int = 128) -> tuple[Maps, Region]:
    """Two maps in one allocation, the first ``start`` bytes into it."""
    content = bytes(start) + MAP.encode() + replace(MAP, dims=(9, 9)).encode()
    region = Region(BASE, len(content), "maps", content=content)
    return Maps(machine(regions=[region], dynamic=512)), region


@pytest.mark.parametrize("start", [0, 128, 192])
def test_a_map_is_read_once_and_again_after_it_was_changed(start: int) -> None:
    maps, region = ready(start)
    at = BASE + start
    assert maps.at(at, 0) == MAP
    region.data[start : start + 8] = 0  # Nobody said so: the map that was read is kept.
    assert maps.at(at, 0) == MAP
    everyone = slice(0, 64)
    maps.replace("box_dim", np.full(64, at), "global", 1, np.full(64, 4), everyone, 0)
    assert maps.at(at, 0) == replace(MAP, base=0, box=(16, 4))
    assert maps.at(at + 128, 0).dims == (9, 9)
    maps.replace(
        "global_address", np.full(64, at + 128), "global", 0, np.full(64, 512), everyone, 0
    )
    assert maps.at(at + 128, 0) == replace(MAP, base=512, dims=(9, 9))
    assert maps.at(at, 0).base == 0


def test_a_map_is_changed_in_shared_memory_and_copied_from_there() -> None:
    maps, _ = ready()
    m = maps.machine
    held = int(m.shared.physical(np.array([SHARED_START + 256]), m.cta_offset[:1])[0])
    m.shared.bytes[held : held + 128] = np.frombuffer(MAP.encode(), np.uint8)
    here = np.full(64, SHARED_START + 256)
    maps.replace("box_dim", here, "shared", 0, np.full(64, 2), slice(0, 64), 0)
    assert maps.at(BASE + 128, 0) == MAP
    maps.copy(np.full(64, BASE + 128), here, slice(0, 64), 0)
    assert maps.at(BASE + 128, 0) == replace(MAP, box=(2, 8))
    maps.start()
    assert maps.at(BASE + 256, 0).dims == (9, 9)


def test_a_map_may_be_a_parameter() -> None:
    maps, _ = ready()
    parameters = maps.machine.parameters
    parameters.bytes = np.zeros(256, np.uint8)
    parameters.bytes[64:192] = np.frombuffer(MAP.encode(), np.uint8)
    assert maps.at(PARAM_WINDOW + 64, 0) == MAP


@pytest.mark.parametrize("off", [0, 16, 32, 64])
def test_a_map_lies_at_a_multiple_of_64(off: int) -> None:
    maps, _ = ready(128 + off)
    assert maps.at(BASE + 128 + off, 0) == MAP
    found = [(d.kind, d.message) for d in maps.machine.reporter.diagnostics]
    assert found == ([("misaligned", f"a tensor map at {BASE + 128 + off:#x}")] if off % 64 else [])


def test_what_is_no_map_ends_the_launch() -> None:
    maps, region = ready()
    with pytest.raises(EmulatorError, match="is outside of every allocation"):
        maps.at(BASE - 128, 0)
    raw = replace(MAP, interleave=1)
    region.data[128:256] = np.frombuffer(raw.encode(), np.uint8)
    assert TensorMap.decode(raw.encode()).interleave == 1
    with pytest.raises(EmulatorError, match="an interleaved tensor map is not emulated"):
        maps.at(BASE + 128, 0)
