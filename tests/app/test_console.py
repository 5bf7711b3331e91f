"""`hypermla NAME` runs what `nox -s NAME --` runs."""

from __future__ import annotations

import importlib
import importlib.util
import re
import runpy
import subprocess
import sys
import tomllib

import pytest

from mla_var3.app import console
from mla_var3.app.sessions import COMMANDS
from mla_var3.paths import repo_root

RUN = "from mla_var3.app.console import script; script()"


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_runs_its_module_on_the_arguments(name, monkeypatch):
    ran = []
    monkeypatch.setattr(sys, "argv", ["hypermla", name, "flash_mla", "--b=3"])
    monkeypatch.setattr(runpy, "run_module", lambda module, **_: ran.append((module, sys.argv[1:])))
    assert console.main() == 0
    command = COMMANDS[name]
    assert ran == [(command.module, [*command.arguments, "flash_mla", "--b=3"])]
    assert importlib.util.find_spec(command.module) is not None


def test_the_package_declares_the_script():
    project = tomllib.loads((repo_root() / "pyproject.toml").read_text())["project"]
    module, _, function = project["scripts"]["hypermla"].partition(":")
    assert getattr(sys.modules[module], function) is console.script


def run(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", RUN, *argv], capture_output=True, text=True)


def test_bad_input_is_one_sentence():
    done = run("chekc")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: unknown command 'chekc'")
    assert "did you mean 'check'" in line


def test_help_names_every_command():
    done = run()
    assert done.returncode == 0
    assert all(f"  {name} " in done.stdout for name in COMMANDS)


def test_a_command_ends_with_its_own_code():
    assert run("devices", "list").returncode == 0
    assert run("devices", "show", "nothing").returncode == 2


#: `nox -s NAME -- one|two`, as README and help say it; a table cell escapes the bar.
CHOICES = re.compile(r"([a-z]+) -- ([a-z0-9-]+(?:\\?\|[a-z0-9-]+)+)")


def choices():
    texts = [(repo_root() / "README.md").read_text(), *(one.help for one in COMMANDS.values())]
    found = {(name, words) for text in texts for name, words in CHOICES.findall(text)}
    return sorted({(n, word) for n, words in found for word in re.split(r"\\?\|", words)})


@pytest.mark.parametrize(("name", "word"), choices())
def test_a_choice_that_readme_or_help_names_exists(name, word, capsys, monkeypatch):
    command = COMMANDS[name]
    monkeypatch.setattr(sys, "argv", [command.module])
    main = importlib.import_module(f"{command.module}{_main(command.module)}").main
    with pytest.raises(SystemExit) as ended:
        main([*command.arguments, word, "--help"])
    assert ended.value.code in (0, None)
    assert word in capsys.readouterr().out


def _main(module):
    """`.__main__` for a package."""
    return ".__main__" if importlib.util.find_spec(module).submodule_search_locations else ""
