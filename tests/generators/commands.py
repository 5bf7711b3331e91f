"""Commands in texts, and whether they would be understood."""

from __future__ import annotations

import ast
import functools
import inspect
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from generators.pages.reference import sessions_of
from mla_var3 import arguments as command_line
from mla_var3 import devices, evidence, languages, workloads
from mla_var3.app import (
    adopting,
    adopting_examples,
    benching,
    bundle,
    campaign,
    contribute,
    options,
    remembering,
    run,
    skills,
    sweep,
    tools,
)
from mla_var3.arguments import parse
from mla_var3.campaign import contract
from mla_var3.evidence import is_address
from mla_var3.examples.store import id_of
from mla_var3.gpuless import suites
from mla_var3.knowledge import __main__ as knowledge
from mla_var3.runtime import registry
from tests.generators.checking import ROOT

PARSE = command_line.parse


def parsed_only(target: Any, argv: Sequence[str], prog: str, description: str | None = None) -> Any:
    """``arguments.parse`` of a command that then does nothing."""
    if inspect.isfunction(target):
        called = target

        @functools.wraps(called)
        def target(*_: Any, **__: Any) -> int:
            return 0

    return PARSE(target, argv, prog, description)


def _parsed_by(main: Callable[[Sequence[str]], int]) -> Callable[[list[str], set[str]], None]:
    """What a command's own parser says of arguments; the command is not run."""

    def takes(arguments: list[str], new: set[str]) -> None:
        with mock.patch.object(command_line, "parse", parsed_only):
            assert main(arguments) == 0

    return takes


def commands_of(text: str) -> Iterator[str]:
    """The lines that start with ``$`` in the console blocks of a Markdown text."""
    for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL):
        for line in block.splitlines():
            if line.strip():
                assert line.strip().startswith("$ "), f"{line!r} is no command"
                yield line.strip().removeprefix("$ ")


def understand(command: str, new: set[str]) -> None:
    """Fail unless a command is understood.

    Args:
        command: The line.
        new: Versions that commands before made: keys such as ``flash_mla v9``.
    """
    words = shlex.split(command, comments=True)
    assert words, command
    if words[0] == "python":
        _python(words[1:])
        return
    assert words[:2] == ["nox", "-s"], command
    end = words.index("--") if "--" in words else len(words)
    names, arguments = words[2:end], words[end + 1 :]
    known = sessions_of(ROOT / "noxfile.py")
    for name in names:
        assert name in known, f"there is no nox session {name}"
    if arguments:
        [name] = names
        TAKES[name](arguments, new)


def _python(words: list[str]) -> None:
    if words[0] == "-c":
        exec(compile(ast.parse(words[1]), "command", "exec"), {})
    else:
        assert (ROOT / words[0]).is_file(), words[0]


def _version(design: str, version: str | None, new: set[str]) -> None:
    if f"{design} {version}" not in new:
        registry.find(design, version)


def _profile(arguments: list[str], new: set[str]) -> None:
    if adopting.is_file(arguments[0]):
        _adopt(arguments[:1], new)
        return
    design, version, *flags = arguments
    _version(design, version, new)
    if f"{design} {version}" not in new and "--help" not in flags:
        options.parse(registry.find(design, version).plan_class(), flags)


def _check(arguments: list[str], new: set[str]) -> None:
    design, *version = arguments
    if adopting.is_file(design):
        _adopt(arguments, new)
        return
    _version(design, version[0] if version else None, new)


def _compare(arguments: list[str], new: set[str]) -> None:
    if adopting.is_file(arguments[0]):
        _adopt(arguments[:1], new)
        return
    design, first, second = arguments
    _version(design, first, new)
    _version(design, second, new)


def _clone(arguments: list[str], new: set[str]) -> None:
    design, source, target = arguments
    found = registry.find(design, source)
    assert re.fullmatch(r"v[1-9]\d*", target)
    key = f"{found.design_key} {target}"
    assert key not in {version.key for version in registry.versions()}, f"{key} is there already"
    new.add(key)


def _bench(arguments: list[str], new: set[str]) -> None:
    versions = benching.chosen(arguments)
    workload = workloads.find(versions[0].layer)
    found = parse(benching.flags_of(workload), arguments, "bench", None)
    assert [benching.plan_of(version, workload, found) for version in versions]


def _knowledge(arguments: list[str], new: set[str]) -> None:
    command, *rest = arguments
    assert command in {"api", "backtest", "court", "lint", "match", "query", "reference"}
    if command == "match":
        assert is_address(rest[0]) or "…" in rest[0], rest[0]
        assert "…" in rest[0] or evidence.at(rest[0])
    if command in ("api", "query"):
        assert knowledge.main(arguments) == 0


def _references(arguments: list[str], new: set[str]) -> None:
    assert arguments[0] in {"check", "cutlass", "write"}


def _fuzz(arguments: list[str], new: set[str]) -> None:
    assert arguments[0] in {"-n", "--only"} or arguments[0].startswith("--only=")


def _devices(arguments: list[str], new: set[str]) -> None:
    command, *rest = arguments
    assert command in {"check", "list", "show"}
    if command == "show":
        devices.find(rest[0])


def _bundle(arguments: list[str], new: set[str]) -> None:
    parse(bundle.Options, arguments, "bundle", None)


def _run(arguments: list[str], new: set[str]) -> None:
    *options, script = arguments
    assert (ROOT / script).is_file(), script
    known = {arch for language in languages.languages().values() for arch in language.archs}
    fields = {"--schedules", "--memory_model"}
    of_emulator = [place for place, option in enumerate(options) if option in fields]
    values = {place + 1 for place in of_emulator}
    for option in (x for n, x in enumerate(options) if n not in {*of_emulator, *values}):
        name, _, archs = option.partition("=")
        assert name == run.ARCH, option
        assert set(archs.split(",")) <= known, option


def _adopt(arguments: list[str], new: set[str]) -> None:
    [file] = arguments
    assert contract.has_contract(ROOT / file), file


def _drafted(arguments: list[str], new: set[str]) -> None:
    if arguments[0].startswith("--examples"):
        assert adopting_examples.runs(arguments[0].partition("=")[2])
        assert all(word.startswith("--timeout=") for word in arguments[1:])
        return
    [file] = arguments
    examples = {id_of(run.path) for run in suites.find("cutlass-examples").runs()}
    assert adopting.is_file(file) or file in examples, file


def _campaign(arguments: list[str], new: set[str]) -> None:
    command, *rest = arguments
    assert command in campaign.COMMANDS
    if command == "memory":
        assert rest[0] in remembering.COMMANDS
    for word in rest:
        if word.startswith("--device="):
            devices.find(word.partition("=")[2])
        elif adopting.is_file(word):
            _adopt([word], new)


def _skills(arguments: list[str], new: set[str]) -> None:
    assert arguments[0] in skills.COMMANDS


TAKES: dict[str, Callable[[list[str], set[str]], None]] = {
    "adopt": _drafted,
    "bench": _bench,
    "bundle": _bundle,
    "campaign": _campaign,
    "check": _check,
    "clone": _clone,
    "compare": _compare,
    "contribute": _parsed_by(contribute.main),
    "devices": _devices,
    "knowledge": _knowledge,
    "fuzz": _fuzz,
    "profile": _profile,
    "references": _references,
    "run": _run,
    "skills": _skills,
    "sweep": _parsed_by(sweep.main),
    "tools": _parsed_by(tools.main),
}


def checkout_files(text: str) -> Iterator[Path]:
    """Files of the checkout that the links of a skill name."""
    for target in re.findall(r"\]\(((?![a-z]+:)[^)#]+)", text):
        yield ROOT / target
