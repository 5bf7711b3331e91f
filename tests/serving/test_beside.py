"""The command that holds our decode to FlashMLA's; here FlashMLA is a stand-in."""

from __future__ import annotations

import sys
import types

import pytest

from mla_var3.errors import CallError
from mla_var3.serving import beside, flashmla


def theirs(off=0.0, lse_off=0.0):
    """Our calls with an error."""

    def flash_mla_with_kvcache(*given, **named):
        out, lse = flashmla.flash_mla_with_kvcache(*given, **named)
        return out * (1 + off), lse + lse_off

    return types.SimpleNamespace(
        get_mla_metadata=flashmla.get_mla_metadata, flash_mla_with_kvcache=flash_mla_with_kvcache
    )


@pytest.mark.parametrize(
    ("given", "code", "said"),
    [((), 0, "agrees"), ((0.02,), 1, "DIFFERS"), ((0.0, 0.01), 1, "DIFFERS")],
)
def test_each_call_says_how_far_apart_both_are(
    by_reference, monkeypatch, capsys, given, code, said
):
    monkeypatch.setitem(sys.modules, "flash_mla", theirs(*given))
    assert beside.main([], "cpu") == code
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(beside.CALLS)
    assert all(line.endswith(f": {said}") for line in lines)


def test_without_the_module_it_says_so():
    with pytest.raises(CallError, match=r"no_such_server\.flash_mla cannot be imported"):
        beside.main(["no_such_server.flash_mla"], "cpu")
