"""Scripts run to their end, whatever it is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mla_var3.errors import EmulatorError, UsageError
from mla_var3.gpuless import scripts


def ended(folder: Path, text: str, *arguments: str) -> scripts.Ended:
    script = folder / "script.py"
    script.write_text(text)
    return scripts.run(script, arguments)


def test_a_script_has_its_arguments_and_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "gpuless_neighbour.py").write_text("VALUE = 3\n")
    before = sys.argv[:], sys.path[:]
    text = (
        "import sys, gpuless_neighbour as n\nassert sys.argv[1:] == ['a', '--b'] and n.VALUE == 3"
    )
    assert ended(tmp_path, text, "a", "--b") == scripts.Ended()
    assert (sys.argv, sys.path) == before


@pytest.mark.parametrize(
    ("said", "code"), [("", 0), ("None", 0), ("3", 3), ("0", 0), ("'in words'", 1)]
)
def test_exit_codes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], said: str, code: int
) -> None:
    assert ended(tmp_path, f"raise SystemExit({said})").code == code
    assert capsys.readouterr().err == ("in words\n" if code == 1 else "")


def test_its_own_errors_are_kept_and_refusals_are_raised(tmp_path: Path) -> None:
    assert isinstance(ended(tmp_path, "assert False").error, AssertionError)
    assert isinstance(ended(tmp_path, "raise GeneratorExit").error, GeneratorExit)
    with pytest.raises(EmulatorError, match="no"):
        ended(tmp_path, "from mla_var3.errors import EmulatorError\nraise EmulatorError('no')")
    with pytest.raises(UsageError, match="there is no script"):
        scripts.exists(tmp_path / "nowhere.py")
