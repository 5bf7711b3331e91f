from __future__ import annotations

import sys
import types

import pytest

from mla_var3 import front


@pytest.fixture
def module(monkeypatch):
    made = types.ModuleType("played_front")
    monkeypatch.setitem(sys.modules, "played_front", made)
    return made


def test_the_function_gets_its_arguments_and_gives_the_exit_code(module):
    module.main = lambda design: {"flash_mla": 7}[design]
    with pytest.raises(SystemExit) as end:
        front.run("played_front:main", design="flash_mla")
    assert end.value.code == 7


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (FileNotFoundError(2, "No usable temporary directory found"), 2, "No usable temporary"),
    ],
)
def test_what_stops_it_is_one_sentence(module, capsys, error, code, said):
    def main():
        raise error

    module.main = main
    with pytest.raises(SystemExit) as end:
        front.run("played_front:main")
    assert end.value.code == code
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1
