"""Memory models: the one assumes all that hardware is known to do, the other nothing."""

from __future__ import annotations

import dataclasses

import pytest

from mla_var3.emulator import options
from mla_var3.errors import EmulatorError


@pytest.mark.parametrize(("name", "assumes"), [("default", True), ("strict", False)])
def test_a_model_assumes_everything_or_nothing(name: str, assumes: bool) -> None:
    """PTX alone promises none of it: whatever is added to ``Model`` is not part of ``strict``."""
    found = options.model(name)
    told = {f.name: getattr(found, f.name) for f in dataclasses.fields(found)}
    assert told.pop("name") == name
    assert set(told.values()) == {assumes}


def test_an_unknown_model_is_refused_with_those_there_are() -> None:
    with pytest.raises(EmulatorError, match=r"no memory model 'weak' \(known: default, strict\)"):
        options.model("weak")


@pytest.mark.parametrize(
    ("seed", "said"), [(None, "lowest pc first"), (0, "seed 0"), (7, "seed 7")]
)
def test_a_schedule_has_a_name(seed: int | None, said: str) -> None:
    assert options.Options(seed=seed).schedule == said
