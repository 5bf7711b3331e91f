"""Every design and version there is, found by looking at the kernels folder."""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib
import inspect
import re
from dataclasses import dataclass
from pathlib import Path

from mla_var3.errors import PlanError, UnknownNameError
from mla_var3.runtime.paths import kernels_dir
from mla_var3.runtime.plan import KernelPlan

#: Language key by package name.
LANGUAGES = {"cutile": "cutile-dsl", "cute_python": "cute-dsl"}
PACKAGE = "mla_var3.kernel"


@dataclass(frozen=True)
class Version:
    """One version of a design: ``v0`` is the base."""

    language: str
    layer: str
    design: str
    version: str
    module: str
    path: Path

    @property
    def name(self) -> str:
        """Module name: ``<design>`` for the base, else ``<design>_<version>``."""
        return self.path.stem

    @property
    def key(self) -> str:
        """``<design> <version>``, as users type it."""
        return f"{self.design} {self.version}"

    def plan_class(self) -> type[KernelPlan]:
        """The one concrete KernelPlan subclass that the version's module defines."""
        module = importlib.import_module(self.module)
        found = [
            value
            for value in vars(module).values()
            if isinstance(value, type)
            and issubclass(value, KernelPlan)
            and value.__module__ == self.module
            and not inspect.isabstract(value)
        ]
        if len(found) != 1:
            raise PlanError(
                f"{self.module} defines {len(found)} concrete KernelPlan classes, needs exactly 1"
            )
        return found[0]

    def source_files(self) -> list[Path]:
        """Python files of the version and of the kernel modules they import, sorted."""
        root = kernels_dir()
        todo = sorted(self.path.parent.glob("*.py"))
        seen: set[Path] = set()
        while todo:
            file = todo.pop()
            if file in seen:
                continue
            seen.add(file)
            todo.extend(_kernel_imports(file, root))
        return sorted(seen)

    def source_sha256(self) -> str:
        """Hash of the version's sources; a record with another hash is stale."""
        digest = hashlib.sha256()
        for file in self.source_files():
            digest.update(file.relative_to(kernels_dir()).as_posix().encode())
            digest.update(b"\0" + file.read_bytes() + b"\0")
        return digest.hexdigest()


def _kernel_imports(file: Path, root: Path) -> list[Path]:
    """Files below ``root`` that ``file`` imports, absolutely or relatively."""
    found = []
    for node in ast.walk(ast.parse(file.read_text())):
        modules: list[tuple[Path, str]] = []
        if isinstance(node, ast.ImportFrom):
            start = file.parents[node.level - 1] if node.level else root
            names = [node.module or "", *(f"{node.module or ''}.{a.name}" for a in node.names)]
            modules = [(start, name) for name in names]
        elif isinstance(node, ast.Import):
            modules = [(root, alias.name) for alias in node.names]
        for start, module in modules:
            if start is root:
                if not module.startswith(PACKAGE + "."):
                    continue
                module = module.removeprefix(PACKAGE + ".")
            path = start.joinpath(*filter(None, module.split(".")))
            found += [p for p in (path.with_suffix(".py"), path / "__init__.py") if p.is_file()]
    return found


def _version_number(version: str) -> int:
    return int(version.removeprefix("v"))


@functools.cache
def versions() -> tuple[Version, ...]:
    """All versions, by language, layer, design and number."""
    root, found = kernels_dir(), []
    for design_dir in sorted(root.glob("*/*/*/")):
        package, layer, design = design_dir.relative_to(root).parts
        if package not in LANGUAGES:
            continue
        for folder in sorted(design_dir.iterdir()):
            path = folder / f"{folder.name}.py"
            match = re.fullmatch(rf"{re.escape(design)}(?:_(v[1-9]\d*))?", folder.name)
            if match and path.is_file():
                module = ".".join((PACKAGE, package, layer, design, folder.name, folder.name))
                found.append(
                    Version(LANGUAGES[package], layer, design, match.group(1) or "v0", module, path)
                )
    return tuple(
        sorted(found, key=lambda v: (v.language, v.layer, v.design, _version_number(v.version)))
    )


def designs() -> dict[str, list[Version]]:
    """Versions of each design in order."""
    grouped: dict[str, list[Version]] = {}
    for version in versions():
        grouped.setdefault(version.design, []).append(version)
    return grouped


def find(design: str, version: str | None = None) -> Version:
    """The version ``version`` of ``design``; the base when None, ``v0`` or ``base``.

    Raises:
        UnknownNameError: No such design or version; the message lists what there is.
    """
    grouped = designs()
    name = design.replace("-", "_")
    if name not in grouped:
        raise UnknownNameError("design", design, sorted(grouped))
    wanted = {None: "v0", "base": "v0"}.get(version, version)
    for candidate in grouped[name]:
        if candidate.version == wanted:
            return candidate
    known = [v.version for v in grouped[name]]
    raise UnknownNameError(f"version of {name}", str(version), known)


def select(design: str | None = None, version: str | None = None) -> list[Version]:
    """One version, all versions of a design, or all versions."""
    if design is None:
        return list(versions())
    if version is None:
        return designs()[find(design).design]
    return [find(design, version)]
