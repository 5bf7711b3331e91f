"""Every command that a page shows in a console is one that the command line understands."""

from __future__ import annotations

import importlib.util
import itertools
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from mla_var3 import arguments
from mla_var3.examples import __main__ as examples
from mla_var3.knowledge import __main__ as knowledge
from mla_var3.paths import repo_root
from tests.generators.commands import TAKES, parsed_only, understand

ROOT = repo_root()
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "knowledge/**/*.md", "kernels/**/*.md")
    for path in ROOT.glob(pattern)
    if "$ " in path.read_text(encoding="utf-8")
)
#: Names that stand for one of the reader's.
OWN = {
    "NAME": "clusters",
    "my_kernel.py": "examples/first/keep_code.py",
    "your_script.py": "examples/first/keep_code.py",
    "my_script.py": "examples/first/keep_code.py",
    "mine.py": "examples/adopted_mla.py",
    "<problem>": "b32-h128-s16-t4096-p64-k512-bf16",
}


def prompts(text: str) -> Iterator[str]:
    """Commands behind a ``$`` in the console blocks of a Markdown text, each on its own."""
    for block in re.findall(r"^ *```console\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL):
        for line in re.findall(r"^ *\$ (.*)$", block, re.MULTILINE):
            yield from line.split(" && ")


def follow(command: str, new: set[str]) -> None:
    """Fail unless a command would be understood."""
    for placeholder, name in OWN.items():
        command = command.replace(placeholder, name)
    if inner := re.fullmatch(r"[A-Z_]+=\$\((.*)\)", command):
        command = inner[1]
    words = shlex.split(command, comments=True)
    while words and re.fullmatch(r"[A-Z_0-9]+=\S+", words[0]):
        words = words[1:]
    if words[:3] == ["python", "-m", "nox"]:
        words = ["nox", *words[3:]]
    if words[:1] == ["nox"]:
        session, rest = words[2], words[4:]
        mains: dict[str, Callable[[Sequence[str]], int]] = {
            "knowledge": knowledge.main, "examples": examples.main,
        }  # fmt: skip
        if session in mains:
            assert mains[session](rest) == 0
        elif session == "tests":
            assert all((ROOT / word).exists() for word in rest if word.startswith("tests/"))
        elif session == "wheel":
            assert set(rest) <= {"--serve"}, command
        else:
            understand(shlex.join(words), new)
    elif words[:3] == ["python", "-m", "pip"]:
        _installs(words[4:], new)
    elif words[:2] == ["pip", "install"] or words[0] == "vllm":
        pass  # Beside the reader's server, which they know.
    elif words[:3] == ["python", "-m", "sglang.launch_server"]:
        pass
    elif words[0] == "cp":
        assert (ROOT / words[1]).is_file(), command
        new.add(words[2])
    elif words[:2] == ["python", "-m"]:
        _runs_module(words[2], words[3:], new)
    elif words[:2] == ["python", "-c"]:
        compile(words[2], command, "exec")
    elif words[0] == "python":
        assert words[1] in new or (ROOT / words[1]).is_file(), command
    elif words[0] == "dask":
        assert words[1] in {"scheduler", "worker"}, command
    elif words[:2] == ["docker", "run"]:
        _runs_container(words[2:])
    elif words[0] in {"nsys", "ncu", "nvidia-smi"}:
        pass  # NVIDIA's, on the reader's GPU host.
    elif words[0] == "export":
        assert all(re.fullmatch(r"[A-Z_]+=\S+", word) for word in words[1:]), command
    elif words[:2] == ["cat", ">"]:
        new.add(words[2])
    elif words[0] == "mkdir":
        assert words[1] == "-p", command
    else:
        assert words[0] in {"grep", "head", "echo", "nvdisasm"}, command
        new.add(words[-1])


def _installs(words: list[str], new: set[str]) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for option, value in itertools.pairwise(words):
        if option == "-c":
            assert (ROOT / value).is_file() or value in new
    for found in re.findall(r"\[([\w,]+)\]", " ".join(words)):
        assert set(found.split(",")) <= set(extras["optional-dependencies"])


def _runs_container(words: list[str]) -> None:
    """A shell in an image of Python whose architecture and version ours is made for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    *_, image, shell = words
    assert shell == "bash"
    name, version = image.split(":")
    assert name == "python"
    assert f"Programming Language :: Python :: {version}" in project["classifiers"]
    options = dict(itertools.pairwise(words))
    assert options["--platform"] == "linux/amd64"
    assert options["-v"].partition(":")[2] == options["-w"]  # It starts in what it is given.


def _runs_module(module: str, rest: list[str], new: set[str]) -> None:
    assert importlib.util.find_spec(module) is not None
    if module.startswith("mla_var3.kernel"):
        design = module.rpartition(".")[2]
        TAKES["profile"](rest if design == "kernel" else [design, *rest], new)


def test_there_are_pages_with_consoles() -> None:
    commands = [c for path in PAGES for c in prompts(path.read_text(encoding="utf-8"))]
    assert len(commands) >= 30


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(Path(p).relative_to(ROOT)))
def test_each_command_is_understood(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arguments, "parse", parsed_only)
    new: set[str] = set()
    for command in prompts(page.read_text(encoding="utf-8")):
        follow(command, new)


def test_an_option_that_does_not_exist_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arguments, "parse", parsed_only)
    for command in ("nox -s knowledge -- lint --quick", "nox -s profile -- flash_mla v1 --tile=3"):
        with pytest.raises(Exception, match=r"--quick|--tile"):
            follow(command, set())


def test_commands_are_parsed_and_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arguments, "parse", parsed_only)

    def never() -> None:
        pytest.fail("the command ran")

    monkeypatch.setattr(knowledge.backtest, "backtest", never)
    assert knowledge.main(["backtest"]) == 0
