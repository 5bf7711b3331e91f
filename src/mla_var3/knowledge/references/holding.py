"""Compares the references with the installed packages: names missing, new or changed."""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import re
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol, cast

from mla_var3.errors import KnowledgeError, ToolchainError
from mla_var3.examples import pin
from mla_var3.knowledge.references import used as used_names
from mla_var3.knowledge.references.model import (
    FOLDER,
    INSTALLED,
    Entry,
    Head,
    Installed,
    Name,
    Reference,
    dump,
)
from mla_var3.languages import languages, public_names
from mla_var3.languages.public_names import PublicName
from mla_var3.paths import write_atomic

#: A comma between parameters, not one inside of a default.
_COMMA = re.compile(r",\s*(?![^()\[\]]*[)\]])")


class Package(Protocol):
    """The module ``api`` of a language: what it reads of the installed package."""

    def names(self) -> dict[str, PublicName]:
        """Every public name."""

    def observed(self) -> dict[str, dict[str, Any]]:
        """Fields of ``Name`` that only trying tells, by name."""

    def key_of(self, dotted: str) -> str | None:
        """The name by which a reference has what a source spells; None for a module."""


def package_of(head: Head) -> Package:
    """The module that reads a reference's package."""
    home = type(languages()[head.language]).__module__
    return cast(Package, importlib.import_module(f"{home}.api"))


def read(reference: Reference, root: Path, observe: bool = True) -> Installed:
    """What the installed package says now.

    Args:
        reference: The reference.
        root: Top of the checkout.
        observe: Also try every operation, which takes a while; else what was seen is kept.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Packages warn of what they will drop.
        return _read(reference, root, observe)


def _read(reference: Reference, root: Path, observe: bool) -> Installed:
    head, known = reference.head, reference.installed
    package = package_of(head)
    told = package.names()
    used = {} if head.complete else _used(reference, package, root)
    for entry in (*used, *(entry.key for entry in reference.entries())):
        if entry not in told:
            with contextlib.suppress(ToolchainError):
                told[entry] = public_names.read(public_names.find(entry, head.aliases))
    seen = package.observed() if observe else {}
    described = {entry.key for entry in reference.entries()}
    return Installed(
        package=head.package,
        version=importlib.metadata.version(head.package),
        names={
            key: Name(
                **vars(name),
                examples=used.get(key, 0),
                **(seen.get(key, {}) if observe else _seen(known.names.get(key))),
            )
            for key, name in told.items()
            if head.complete or key in used or key in described
        },
        others=tuple(
            sorted(key for key in told if not (head.complete or key in used or key in described))
        ),
        missing=tuple(sorted(used.keys() - told.keys())),
    )


def _used(reference: Reference, package: Package, root: Path) -> dict[str, int]:
    """How many examples use each name; as it was written, where they are not fetched."""
    try:
        tree = pin.tree(root)
    except KnowledgeError:
        names = reference.installed.names
        known = {key: name.examples for key, name in names.items() if name.examples}
        return known | dict.fromkeys(reference.installed.missing, 0)
    found: Counter[str] = Counter()
    top = next(iter(reference.head.aliases.values())).partition(".")[0]
    for dotted, count in used_names.names(tree.root / pin.EXAMPLES, top).items():
        if used_names.is_public(dotted):
            try:
                key = package.key_of(dotted)
            except ToolchainError:
                key = dotted
            if key:
                found[key] += count
    return dict(found)


def _seen(name: Name | None) -> dict[str, Any]:
    return {"dtypes": name.dtypes, "lowers": name.lowers} if name else {}


def write(reference: Reference, root: Path) -> Path:
    """Write what the installed package says; returns the file."""
    path = root / FOLDER / reference.key / INSTALLED
    write_atomic(path, dump(read(reference, root)))
    return path


def faults(reference: Reference, now: Installed) -> Iterator[str]:
    """What does not hold, one sentence each.

    Args:
        reference: The reference.
        now: What the installed package says.
    """
    known = reference.installed
    yield from _described(reference, now)
    yield from _details(reference, now)
    yield from _snippets(reference)
    for key in sorted(now.names.keys() & known.names.keys()):
        before, after = known.names[key], now.names[key]
        if (before.kind, before.signature, before.members, before.choices) != (
            after.kind, after.signature, after.members, after.choices
        ):  # fmt: skip
            yield f"{key} of {now.package} {now.version} is not what {INSTALLED} says"
    told = {*known.names, *known.others}
    for key in sorted({*now.names, *now.others} - told):
        yield f"{key} is new in {now.package} {now.version}"
    for key in sorted(told - {*now.names, *now.others}):
        yield f"{key} is gone from {now.package} {now.version}"


def _described(reference: Reference, now: Installed) -> Iterator[str]:
    head, seen = reference.head, set()
    for entry in reference.entries():
        if entry.key in seen:
            yield f"{entry.key} is described twice ({entry.file}:{entry.line})"
        seen.add(entry.key)
        if entry.key not in now.names:
            yield f"{entry.file}:{entry.line} describes {entry.key}, which {head.package} lacks"
    for key in sorted(now.names.keys() - seen):
        yield f"{key} of {head.package} is not described"


def _details(reference: Reference, now: Installed) -> Iterator[str]:
    """Arguments that a name does not take, and successors that nothing describes."""
    known = {entry.key for entry in reference.entries()}
    for entry in reference.entries():
        signature = now.names.get(entry.key, entry.name).signature
        taken = parameters(signature)
        # Whatever comes by keyword has names that the signature does not say.
        for argument in entry.detail.args.keys() - taken if "**" not in signature else ():
            yield f"{entry.file}:{entry.line}: {entry.key} takes no {argument}"
        if (successor := entry.detail.instead) and successor not in known:
            where = f"{entry.file}:{entry.line}"
            yield f"{where}: {successor}, in place of {entry.key}, is not described"


def parameters(signature: str) -> set[str]:
    """Names of the parameters of a signature as ``Name`` has it."""
    found = set()
    for part in _COMMA.split(signature[1:-1]):
        name = part.partition("=")[0].strip()
        if name.isidentifier():
            found.add(name)
    return found


def _snippets(reference: Reference) -> Iterator[str]:
    known = {key for part in reference.parts for key in part.chapter.names}
    shown = {name for part in reference.parts for cell in part.cells for name in cell.names}
    for cell in (cell for part in reference.parts for cell in part.cells):
        for name in cell.unused():
            yield f"{cell.file}:{cell.line} is headed {name} and does not use it"
        for name in sorted(set(cell.names) - known):
            yield f"{cell.file}:{cell.line} is headed {name}, which nothing describes"
    if reference.head.complete:
        for entry in reference.entries():
            short = entry.key.partition(".")[2]
            if not {short, entry.key} & shown and _is_for_kernels(entry):
                yield f"{entry.file}:{entry.line}: {entry.key} has no snippet"


#: What only a host with a GPU can call, so that no snippet can run here.
_HOST = ("compilation", "compiler_timeout", "tune")


def _is_for_kernels(entry: Entry) -> bool:
    return entry.name.kind == "function" and entry.key.split(".")[1] not in _HOST
