from __future__ import annotations

import errno
import io
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

from mla_var3 import front
from mla_var3.errors import HyperMlaError, PlanError

#: Every module that can be run, with what most of them import first.
MODULES = (
    "mla_var3.app.clone",
    "mla_var3.devices",
    "mla_var3.kernel",
    "mla_var3.kernel.cutile.mla.flash_mla",
    "mla_var3.knowledge",
    "mla_var3.evidence",
    "mla_var3.app.commands",
    "mla_var3.interpreter",
)
HEAVY = ("libcst", "pydantic", "rich", "torch", "tyro")


@pytest.fixture
def command(monkeypatch):
    """Runs a function as a command; gives its exit code."""
    made = types.ModuleType("played_front")
    monkeypatch.setitem(sys.modules, "played_front", made)

    def run(main, **arguments) -> int:
        made.main = main
        with pytest.raises(SystemExit) as end:
            front.run("played_front:main", **arguments)
        return end.value.code

    return run


def raising(error):
    def main():
        raise error

    return main


def test_the_function_gets_its_arguments_and_gives_the_exit_code(command):
    assert command(lambda design: {"flash_mla": 7}[design], design="flash_mla") == 7


def test_help_ends_with_its_own_code(command):
    assert command(raising(SystemExit(0))) == 0


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (KeyboardInterrupt(), 130, "interrupted; nothing half-written is left\n"),
        (PlanError("t=[bold]0[/bold] is below 1"), 2, "error: t=[bold]0[/bold] is below 1\n"),
        (HyperMlaError("one fault\nanother"), 2, "error: one fault\nerror: another\n"),
        (OSError(errno.ENOSPC, "No space left on device", "/x/y"), 2,
         "error: No space left on device (/x/y)\n"),
        (FileNotFoundError(2, "No usable temporary directory found"), 2,
         "error: No usable temporary directory found\n"),
        (OSError("odd"), 2, "error: odd\n"),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), 141, ""),
    ],
)  # fmt: skip
def test_what_stops_it_is_one_sentence(command, capsys, error, code, said):
    assert command(raising(error)) == code
    assert capsys.readouterr().err == said


def test_a_fault_of_the_program_keeps_its_traceback(monkeypatch):
    monkeypatch.setattr(front, "tell", pytest.fail)
    with pytest.raises(AttributeError):
        front.run("mla_var3.front:nosuch")


def test_output_that_rich_could_not_pipe_on_is_quiet(command, capsys):
    def main():
        try:
            raise BrokenPipeError
        except BrokenPipeError:
            raise SystemExit(1)  # noqa: B904

    assert command(main) == 141
    assert capsys.readouterr().err == ""


class Full(io.StringIO):
    """A stream on a full disk, which Python would try to empty at exit once more."""

    def flush(self):
        if not self.closed:
            raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_under_the_output_is_told_before_the_exit(command, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdout", Full())
    assert command(lambda: print("all")) == 2
    assert sys.stdout.closed
    assert capsys.readouterr().err == "error: No space left on device\n"


def test_without_any_output_the_code_still_tells(command, monkeypatch):
    monkeypatch.setattr(sys, "stderr", Full())
    assert command(raising(PlanError("x"))) == 2
    monkeypatch.setattr(sys, "stdout", None)
    assert command(lambda: print("all")) is None


def test_a_character_that_the_terminal_lacks_is_no_fault(command, monkeypatch):
    shown = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(shown, encoding="ascii"))
    assert command(lambda: print("b64 · s1")) is None
    assert shown.getvalue() == b"b64 ? s1\n"


class TestExcepthook:
    def test_what_a_user_can_cause_is_told(self, capsys):
        with pytest.raises(SystemExit) as end:
            front.excepthook(KeyboardInterrupt, KeyboardInterrupt(), None)
        assert end.value.code == 130
        assert capsys.readouterr().err == "interrupted; nothing half-written is left\n"

    def test_a_fault_of_the_program_keeps_its_traceback(self, capsys):
        front.excepthook(ZeroDivisionError, ZeroDivisionError("by 0"), None)
        assert "ZeroDivisionError: by 0" in capsys.readouterr().err


@pytest.mark.parametrize("module", MODULES)
def test_an_interrupt_while_modules_load_is_one_sentence(module, tmp_path):
    for name in HEAVY:
        (tmp_path / f"{name}.py").write_text("raise KeyboardInterrupt\n")
    done = subprocess.run(
        [sys.executable, "-m", module, "x"], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert done.stderr == "interrupted; nothing half-written is left\n"
    assert (done.returncode, done.stdout) == (130, "")


def test_every_module_that_can_be_run_is_guarded():
    package = Path(front.__file__).parent
    files = [*package.rglob("*.py"), *(package / "kernel").resolve().rglob("__main__.py")]
    texts = [text for file in files if '__name__ == "__main__"' in (text := file.read_text())]
    assert len(texts) >= len(MODULES)
    assert all(
        'if __name__ == "__main__":\n    run(' in text.replace("front.run", "run") for text in texts
    )


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full here")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_command_on_a_full_disk(unbuffered):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "mla_var3.devices", "list"], stdout=full,
            stderr=subprocess.PIPE, text=True, check=False,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (2, "error: No space left on device\n")


class TestUtf8:
    """File names that the locale does not take as UTF-8 are read in Python's UTF-8 mode."""

    @pytest.fixture
    def started(self, monkeypatch) -> list[list[str]]:
        starts: list[list[str]] = []
        monkeypatch.setattr(sys, "orig_argv", ["python", "-m", "played", "--b=1"])
        monkeypatch.setattr(os, "execv", lambda path, argv: starts.append([path, *argv]))
        monkeypatch.setenv("PYTHONUTF8", "0")
        return starts

    def test_it_starts_again(self, command, monkeypatch, started):
        monkeypatch.setattr(sys, "getfilesystemencoding", lambda: "ascii")
        command(lambda: 0)
        assert started == [[sys.executable, sys.executable, "-m", "played", "--b=1"]]
        assert os.environ["PYTHONUTF8"] == "1"

    def test_it_starts_again_once(self, command, monkeypatch, started):
        monkeypatch.setattr(sys, "getfilesystemencoding", lambda: "ascii")
        monkeypatch.setenv("PYTHONUTF8", "1")
        command(lambda: 0)
        assert started == []

    def test_it_does_not_where_names_are_utf8(self, command, started):
        command(lambda: 0)
        assert started == []
