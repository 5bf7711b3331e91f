"""Registry of designs and versions: finds them in the kernels folder, by name or language."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import re
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from mla_var3 import inputs
from mla_var3.blobs import once_per_content
from mla_var3.errors import HyperMlaError, PlanError, UnknownNameError
from mla_var3.evidence import identify
from mla_var3.paths import kernels_dir
from mla_var3.runtime.plan import KernelPlan
from mla_var3.syntax import statements
from mla_var3.versions import number_of
from mla_var3.workloads import check_kinds

PACKAGE = "mla_var3.kernel"


#: Language taken where a design exists in several and nobody names one.
PREFERRED = "cutile-dsl"


@dataclass(frozen=True)
class Version:
    """One version of a design: ``v0`` is the base.

    Attributes:
        language: Key of the language, which its package below ``kernels/`` declares.
        package: That package's name.
        layer: The workload.
        design: The design; the same one may exist in several languages.
        version: ``v0``, ``v1``, ...
        module: Module that holds the plan.
        path: Its file.
    """

    language: str
    package: str
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
    def design_key(self) -> str:
        """The design as users type it: with ``@<language>`` where another language is preferred."""
        return self.design if self.language == preferred(self.design) else self.qualified

    @property
    def qualified(self) -> str:
        """``<design>@<language>``."""
        return f"{self.design}@{self.language}"

    @property
    def key(self) -> str:
        """Design and version, as users type them."""
        return f"{self.design_key} {self.version}"

    @property
    def folder(self) -> Path:
        """Where runs of the version leave what they make, below a folder of theirs."""
        return Path(self.package, self.layer, self.design, self.version)

    def plan_class(self) -> type[KernelPlan]:
        """The class ``Plan`` that the version's module defines.

        Raises:
            PlanError: The module cannot be imported, or defines no concrete plan of that name.
        """
        found = vars(_imported(self.module)).get("Plan")
        if (
            not (isinstance(found, type) and issubclass(found, KernelPlan))
            or found.__module__ != self.module
            or inspect.isabstract(found)
        ):
            raise PlanError(f"{self.module} defines no concrete KernelPlan named Plan")
        return found

    def plan_of(self, problem: Mapping[str, Any]) -> KernelPlan:
        """The version's plan of a problem.

        Args:
            problem: Values by field; a field that is left out has its default.

        Raises:
            UnknownNameError: The plan has no such field, as that of an old record may not.
            PlanError: As for ``plan_class``, or a value is of another type than its field.
        """
        plan_class = self.plan_class()
        known = [field.name for field in plan_class.option_fields()]
        for name in problem:
            if name not in known:
                raise UnknownNameError("field", name, known)
        check_kinds(plan_class, problem, PlanError)
        return plan_class(**problem)

    def source_files(self) -> list[Path]:
        """Python files of the version and of the kernel modules they import, sorted."""
        return reached(sorted(self.path.parent.glob("*.py")))

    def sources(self) -> dict[str, str]:
        """Git blob id of each source file by its path; a record with others is stale."""
        return identify(self.source_files(), kernels_dir())


def reached(files: Iterable[Path]) -> list[Path]:
    """These Python files and the kernel modules that they import, at any distance, sorted."""
    todo, seen = list(files), set[Path]()
    while todo:
        file = todo.pop()
        if file in seen:
            continue
        seen.add(file)
        todo.extend(_kernel_imports(file))
    return sorted(seen)


def _imported(module: str) -> ModuleType:
    """Import a module; a fault of its source is one sentence that names the line."""
    try:
        return importlib.import_module(module)
    except HyperMlaError:
        raise
    except Exception as error:
        said = " ".join(str(error).split())
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = "" if isinstance(error, SyntaxError) else f" ({last.filename}, line {last.lineno})"
        kind = type(error).__name__
        raise PlanError(f"{module} cannot be imported: {kind}: {said}{where}") from error


def _parsed(file: Path) -> ast.Module:
    with inputs.faults_as(PlanError, str(file)):
        return inputs.read_python(file)


@once_per_content  # Versions share files.
def _kernel_imports(file: Path) -> list[Path]:
    """Files of the kernels folder that ``file`` imports, absolutely or relatively."""
    root, found = kernels_dir(), []
    for node in statements(_parsed(file)):
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


@functools.cache
def packages() -> dict[str, str]:
    """Language key of each package below ``kernels/``, as its ``LANGUAGE`` declares it."""
    found = {}
    for file in sorted(kernels_dir().glob("*/__init__.py")):
        for node in _parsed(file).body:
            match node:
                case ast.Assign(targets=[ast.Name(id="LANGUAGE")], value=ast.Constant(value=key)):
                    found[file.parent.name] = str(key)
    return found


@functools.cache
def versions() -> tuple[Version, ...]:
    """All versions, by language (the preferred one first), layer, design and number."""
    root, found = kernels_dir(), []
    for design_dir in sorted(root.glob("*/*/*/")):
        package, layer, design = design_dir.relative_to(root).parts
        if (language := packages().get(package)) is None:
            continue
        for folder in sorted(design_dir.iterdir()):
            path = folder / f"{folder.name}.py"
            match = re.fullmatch(rf"{re.escape(design)}(?:_(v[1-9]\d*))?", folder.name)
            if match and path.is_file():
                module = ".".join((PACKAGE, package, layer, design, folder.name, folder.name))
                number = match.group(1) or "v0"
                found.append(Version(language, package, layer, design, number, module, path))
    return tuple(sorted(found, key=_order))


def _order(v: Version) -> tuple[bool, str, str, str, int]:
    return (v.language != PREFERRED, v.language, v.layer, v.design, number_of(v.version))


@functools.cache
def preferred(design: str) -> str:
    """The language that a design is taken in where nobody names one."""
    return next((v.language for v in versions() if v.design == design), PREFERRED)


def clear_caches() -> None:
    """Forget what was found: kernels changed on disk."""
    for cached in (packages, versions, preferred):
        cached.cache_clear()


def designs(layer: str | None = None) -> dict[str, list[Version]]:
    """Versions of each design (of one workload) in order, by the key that users type."""
    grouped: dict[str, list[Version]] = {}
    for version in versions():
        if layer in (None, version.layer):
            grouped.setdefault(version.design_key, []).append(version)
    return grouped


def find(design: str, version: str | None = None, language: str | None = None) -> Version:
    """The version ``version`` of ``design``; the base when None, ``v0`` or ``base``.

    Args:
        design: Its name, with ``@<language>`` where it exists in several.
        version: The version.
        language: The language, another way to say it.

    Raises:
        UnknownNameError: No such design or version; the message lists what there is.
    """
    grouped = designs()
    name, _, given = design.replace("-", "_", design.partition("@")[0].count("-")).partition("@")
    if design.endswith("@"):
        raise UnknownNameError("design", design, sorted(grouped))
    wanted_language = language or given or preferred(name)
    own = [v for v in versions() if v.design == name]
    if not own:
        raise UnknownNameError("design", design, sorted(grouped))
    mine = [v for v in own if v.language == wanted_language]
    if not mine:
        known = list(dict.fromkeys(v.language for v in own))
        raise UnknownNameError(f"language of {name}", wanted_language, known)
    wanted = {None: "v0", "base": "v0"}.get(version, version)
    for candidate in mine:
        if candidate.version == wanted:
            return candidate
    raise UnknownNameError(f"version of {name}", str(version), [v.version for v in mine])


def other_languages(version: Version) -> list[str]:
    """Further languages that the version's design exists in."""
    found = dict.fromkeys(v.language for v in versions() if v.design == version.design)
    return [language for language in found if language != version.language]


def select(
    design: str | None = None, version: str | None = None, language: str | None = None
) -> list[Version]:
    """One version, all versions of a design, or all versions.

    Raises:
        UnknownNameError: There is no such design, version or language.
    """
    if design is None:
        known = list(dict.fromkeys(v.language for v in versions()))
        if language not in (None, *known):
            raise UnknownNameError("language", str(language), known)
        return [v for v in versions() if language in (None, v.language)]
    found = find(design, version, language)
    return designs()[found.design_key] if version is None else [found]


def version_of(plan: KernelPlan) -> Version:
    """The version that a plan belongs to.

    Raises:
        PlanError: Its module is not one of the kernels folder.
    """
    module = type(plan).__module__
    for version in versions():
        if version.module == module:
            return version
    raise PlanError(f"{module}.{type(plan).__name__} is not the plan of a version in kernels/")
