"""Command ``campaign memory``: creates, reads, updates, masks and lists entries of its memory.

``campaign.memory`` stores the entries.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro

from mla_var3 import arguments, inputs
from mla_var3.arguments import named
from mla_var3.campaign import memory, soundness, workspace
from mla_var3.campaign.memory import Entry
from mla_var3.errors import InputError

Campaign = Annotated[tyro.conf.Positional[str], named("NAME")]
Version = Annotated[tyro.conf.Positional[str], named("VERSION")]
File = Annotated[tyro.conf.Positional[Path], named("FILE.json")]


def create(name: Campaign, file: File) -> None:
    """Add an entry from a JSON file of the schema.

    Args:
        name: The campaign.
        file: The entry.
    """
    found = workspace.find(name)
    _kept(found, found.memory.create(_content(file), _allow(found)), "created")


def read(name: Campaign, version: Version) -> None:
    """Print an entry.

    Args:
        name: The campaign.
        version: The version.
    """
    print(workspace.find(name).memory.read(version).text(), end="")


def update(name: Campaign, version: Version, file: File) -> None:
    """Replace those fields of an entry that a JSON file holds.

    Args:
        name: The campaign.
        version: The version.
        file: The fields.
    """
    found = workspace.find(name)
    _kept(found, found.memory.update(version, _content(file), _allow(found)), "updated")


def mask(name: Campaign, version: Version) -> None:
    """Have planning pass an entry over.

    Args:
        name: The campaign.
        version: The version.
    """
    found = workspace.find(name)
    _kept(found, found.memory.mask(version), "masked")


def unmask(name: Campaign, version: Version) -> None:
    """Have planning see an entry again.

    Args:
        name: The campaign.
        version: The version.
    """
    found = workspace.find(name)
    _kept(found, found.memory.mask(version, masked=False), "unmasked")


def summary(name: Campaign) -> None:
    """Print a line per entry.

    Args:
        name: The campaign.
    """
    for line in workspace.find(name).memory.summary():
        print(line)


def schema() -> None:
    """Print the JSON Schema of an entry."""
    print(json.dumps(memory.json_schema(), indent=1))


COMMANDS: dict[str, Callable[..., None]] = {
    "create": create, "read": read, "update": update, "mask": mask, "unmask": unmask,
    "summary": summary, "schema": schema,
}  # fmt: skip


def _content(file: Path) -> dict[str, Any]:
    """The object that a JSON file holds.

    Raises:
        InputError: It holds none.
    """
    content = inputs.read_json(file, unique=True)
    if not isinstance(content, dict):
        raise InputError(str(file), "holds no JSON object")
    return content


def _allow(found: workspace.Workspace) -> memory.Allow:
    """Refuses an entry that names what the campaign does not have."""
    return lambda entry: soundness.require_entries(found, [entry])


def _kept(found: workspace.Workspace, entry: Entry, done: str) -> None:
    found.commit(f"memory: {done} {entry.version}")
    print(f"{done} {entry.version}: {entry.verdict}")


def main(argv: Sequence[str], prog: str) -> int:
    """Run the command that ``argv`` names; returns the exit code."""
    command, rest, name = arguments.choose(COMMANDS, argv, prog)
    arguments.parse(command, rest, name)
    return 0
