"""Start a kernel version as a copy of another, with every name that carries the version rewritten.

``python -m mla_var3.app.clone mla_var6_plus v4 v5`` copies the version's package and rewrites the
names that it binds (modules, kernel functions, classes, whatever the language), imports inside the
package, quoted forward references, package names in strings, and the docstrings and comments that
name the version. Names that it imports from elsewhere stay as they are. The design's devlog gets
the skeleton of an entry. Everything is prepared beside the target and renamed into place, so that a
clone that fails leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, TypeVar

import libcst as cst
import tyro
from libcst.helpers import get_full_name_for_node

from mla_var3 import arguments, front
from mla_var3.arguments import named
from mla_var3.errors import CloneError, UnknownNameError
from mla_var3.paths import kernels_dir, relative, write_atomic
from mla_var3.runtime import registry
from mla_var3.runtime.renaming import PACKAGE, Names, Rewriter

_VERSION = re.compile(r"v[1-9][0-9]*")
_ENTRY = re.compile(r"^### v(\d+)\b", re.MULTILINE)

_PROMPTS = {
    "What changed": "What {target} does that {source} does not; nothing yet, it is a copy.",
    "Why": "The profile or record of {source} that asks for the change.",
    "Predicted": "What the change should do to which metric, and the arithmetic behind it.",
    "Falsified by": "The observation that would show the prediction wrong.",
    "Measured": "{{{{ measured }}}}",
    "Insights": "What was learnt, also when the prediction failed.",
    "Next": "What the profile of {target} asks for.",
}


_Valued = TypeVar("_Valued", cst.Name, cst.SimpleString, cst.FormattedStringText, cst.Comment)


def _valued(node: _Valued, value: str) -> _Valued:
    """``node`` with another value; most keep theirs, and copying a node is slow."""
    return node if value == node.value else node.with_changes(value=value)


def rewritten(rewriter: Rewriter, path: Path, text: str) -> str:
    """The text of the file at ``path`` below the package with its names rewritten."""
    package = (*rewriter.names.package_path, *path.parts[:-1])
    return cst.parse_module(text).visit(_Renamer(rewriter, package)).code


class _Renamer(cst.CSTTransformer):
    """Applies a ``Rewriter`` to one module of ``package``."""

    def __init__(self, rewriter: Rewriter, package: Sequence[str]) -> None:
        super().__init__()
        self.rewriter = rewriter
        self.package = tuple(package)
        self.docstrings: list[cst.BaseExpression] = []

    def visit_Module(self, node: cst.Module) -> None:
        self._note_docstring(node.body)

    def visit_ClassDef(self, node: cst.ClassDef) -> None:
        self._note_docstring(node.body.body)

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self._note_docstring(node.body.body)

    def _note_docstring(self, body: Sequence[cst.CSTNode]) -> None:
        match list(body[:1]):
            case [cst.SimpleStatementLine(body=[cst.Expr(value=value), *_])]:
                self.docstrings.append(value)

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.Name:
        return _valued(updated_node, self.rewriter.identifier(updated_node.value))

    def leave_SimpleString(
        self, original_node: cst.SimpleString, updated_node: cst.SimpleString
    ) -> cst.SimpleString:
        prose = any(original_node is docstring for docstring in self.docstrings)
        return _valued(updated_node, self.rewriter.text(updated_node.value, prose=prose))

    def leave_FormattedStringText(
        self, original_node: cst.FormattedStringText, updated_node: cst.FormattedStringText
    ) -> cst.FormattedStringText:
        return _valued(updated_node, self.rewriter.text(updated_node.value, prose=False))

    def leave_Comment(self, original_node: cst.Comment, updated_node: cst.Comment) -> cst.Comment:
        return _valued(updated_node, self.rewriter.text(updated_node.value, prose=True))

    # Module paths are renamed as a whole: in flash_mla.flash_mla the first word is the design.
    def visit_Attribute(self, node: cst.Attribute) -> bool:
        return not (get_full_name_for_node(node) or "").startswith(PACKAGE + ".")

    def leave_Attribute(
        self, original_node: cst.Attribute, updated_node: cst.Attribute
    ) -> cst.BaseExpression:
        if self.visit_Attribute(original_node):
            return updated_node
        return self._dotted(updated_node)

    def visit_Import(self, node: cst.Import) -> bool:
        return False

    def leave_Import(self, original_node: cst.Import, updated_node: cst.Import) -> cst.Import:
        names = [
            alias.with_changes(name=self._dotted(alias.name), asname=self._asname(alias))
            for alias in updated_node.names
        ]
        return updated_node.with_changes(names=names)

    def visit_ImportFrom(self, node: cst.ImportFrom) -> bool:
        return False

    def leave_ImportFrom(
        self, original_node: cst.ImportFrom, updated_node: cst.ImportFrom
    ) -> cst.ImportFrom:
        level = len(updated_node.relative)
        start = self.package[: len(self.package) + 1 - level] if level else ()
        module = updated_node.module
        parts = (*start, *(_words(module) if module is not None else ()))
        renamed = self.rewriter.dotted(parts)[len(start) :]
        changes: dict[str, object] = {}
        if module is not None and list(renamed) != _words(module):
            changes["module"] = cst.parse_expression(".".join(renamed))
        if not isinstance(updated_node.names, cst.ImportStar):
            changes["names"] = [
                alias.with_changes(
                    name=cst.Name(self.rewriter.dotted((*parts, *_words(alias.name)))[-1]),
                    asname=self._asname(alias),
                )
                for alias in updated_node.names
            ]
        return updated_node.with_changes(**changes)

    def _dotted(self, node: cst.BaseExpression) -> cst.BaseExpression:
        words = _words(node)
        renamed = self.rewriter.dotted(words)
        return node if list(renamed) == words else cst.parse_expression(".".join(renamed))

    def _asname(self, alias: cst.ImportAlias) -> cst.AsName | None:
        if alias.asname is None or not isinstance(alias.asname.name, cst.Name):
            return alias.asname
        name = self.rewriter.identifier(alias.asname.name.value)
        return alias.asname.with_changes(name=cst.Name(name))


def _words(node: cst.CSTNode) -> list[str]:
    return (get_full_name_for_node(node) or "").split(".")


def find_source(root: Path, source: str, package: str | None = None) -> tuple[Path, str]:
    """The design's folder and the version that a name stands for.

    Args:
        root: The kernels folder.
        source: ``flash_mla_v1``; ``flash_mla`` or ``flash_mla_v0`` for the base.
        package: Folder of the language below ``kernels/``; where several languages have the
            version and none is asked for, the preferred one is taken.

    Raises:
        UnknownNameError: There is no such version or language.
        CloneError: Several languages have the version, none of them the preferred one.
    """
    folders = [path for path in sorted(root.glob("*/*/*")) if path.is_dir()]
    packages = sorted({folder.parts[-3] for folder in folders})
    if package is not None and package not in packages:
        raise UnknownNameError("language", package, packages)
    known: dict[str, list[tuple[Path, str]]] = {}
    for folder in folders:
        if package in (None, folder.parts[-3]):
            for version in _versions(folder):
                name = folder.name if version == "v0" else f"{folder.name}_{version}"
                known.setdefault(name, []).append((folder, version))
    name = source.strip().replace("-", "_").removesuffix("_v0")
    if name not in known:
        raise UnknownNameError("version", source, sorted(known))
    if len(found := known[name]) == 1:
        return found[0]
    preferred = _packages_of(registry.PREFERRED)
    for folder, version in found:
        if folder.parts[-3] in preferred:
            return folder, version
    several = ", ".join(folder.parts[-3] for folder, _ in found)
    raise CloneError(f"{name} exists in {several}; say which with --lang")


def _packages_of(language: str) -> list[str]:
    """Folders below ``kernels/`` of a language."""
    return [package for package, key in registry.packages().items() if key == language]


def _other_packages(design: Path) -> list[str]:
    """Folders of the other languages that a design's folder exists in."""
    found = design.parents[2].glob(f"*/*/{design.name}")
    return sorted({folder.parts[-3] for folder in found} - {design.parts[-3]})


def _versions(folder: Path) -> Iterator[str]:
    for package in sorted(folder.iterdir()):
        match = re.fullmatch(rf"{re.escape(folder.name)}(?:_({_VERSION.pattern}))?", package.name)
        if match and (package / f"{package.name}.py").is_file():
            yield match.group(1) or "v0"


def clone(source: str, target: str, *, root: Path, package: str | None = None) -> list[Path]:
    """Copy a version under a new number.

    Args:
        source: The version to copy, as ``find_source`` takes it.
        target: The new version, ``v5``.
        root: The kernels folder.
        package: Folder of the language, see ``find_source``.

    Returns:
        What was written: the new package and the devlog.

    Raises:
        UnknownNameError: There is no such version.
        CloneError: The target exists, is not a version name, or cannot be written.
    """
    root = root.resolve()
    folder, version = find_source(root, source, package)
    number = target.strip().removeprefix(f"{folder.name}_")
    if not _VERSION.fullmatch(number):
        raise CloneError(f"{target!r} is not a version to clone to: versions are v1, v2, and so on")
    designs = (path.name for path in root.glob("*/*/*") if path.is_dir())
    names = Names(root, folder, version, number, frozenset(designs) - {folder.name})
    destination = folder / names.target_module
    if os.path.lexists(destination):
        raise CloneError(f"{names.target_module} exists already: {destination}")
    try:
        return _write(names, destination)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise CloneError(
            f"{names.target_module} cannot be written ({reason}); nothing was changed"
        ) from error


def _write(names: Names, destination: Path) -> list[Path]:
    devlog = names.folder / "devlog.md"
    before = devlog.read_text(encoding="utf-8") if devlog.exists() else None
    after = add_entry(before, names)
    # Whatever happens before pop_all, an interrupt included, is undone in reverse order.
    with contextlib.ExitStack() as undo:
        staging = Path(tempfile.mkdtemp(prefix=f".{destination.name}.", dir=names.folder))
        undo.callback(shutil.rmtree, staging, ignore_errors=True)
        _stage(names, staging)
        staging.chmod(0o755)
        staging.rename(destination)
        undo.callback(shutil.rmtree, destination, ignore_errors=True)
        undo.callback(_restore, devlog, before)
        write_atomic(devlog, after)
        undo.pop_all()
    return [destination, devlog]


def _stage(names: Names, staging: Path) -> None:
    package = names.folder / names.source_module
    files = [
        path.relative_to(package)
        for path in sorted(package.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    ]
    sources = {
        path: (package / path).read_text(encoding="utf-8") for path in files if path.suffix == ".py"
    }
    rewriter = Rewriter(names, sources)
    for path in files:
        copy = staging / rewriter.path(path)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if path in sources:
            copy.write_text(rewritten(rewriter, path, sources[path]), encoding="utf-8")
        else:
            shutil.copyfile(package / path, copy)


def _restore(devlog: Path, before: str | None) -> None:
    if before is None:
        devlog.unlink(missing_ok=True)
    elif devlog.read_text(encoding="utf-8") != before:
        write_atomic(devlog, before)


def add_entry(devlog: str | None, names: Names) -> str:
    """The text of a devlog with the skeleton of the clone's entry, versions ascending.

    Args:
        devlog: The text so far; None when the design has no devlog yet.
        names: Design, source and target.

    Raises:
        CloneError: The devlog has an entry of that version.
    """
    from mla_var3.knowledge.schema import DEVLOG_SECTIONS  # Slow to load, and help needs none.

    if devlog is None:
        devlog = f"---\ntitle: {names.design}\nevidence: []\n---\n"
    words = {"source": names.source, "target": names.target}
    sections = [f"#### {title}\n\n{_PROMPTS[title].format(**words)}" for title in DEVLOG_SECTIONS]
    entry = "\n\n".join([f"### {names.target}: <verdict>", *sections])
    number = int(names.target[1:])
    position = len(devlog)
    for heading in _ENTRY.finditer(devlog):
        if int(heading.group(1)) == number:
            raise CloneError(f"the devlog of {names.design} has an entry {names.target} already")
        if int(heading.group(1)) > number:
            position = heading.start()
            break
    head, tail = devlog[:position].rstrip("\n"), devlog[position:]
    return f"{head}\n\n{entry}\n" + (f"\n{tail}" if tail else "")


def main(argv: Sequence[str] | None = None) -> int:
    """Clone what ``argv`` (the process's by default) names; returns the exit code."""

    def run(
        design: Annotated[tyro.conf.Positional[str], named("DESIGN")],
        version: Annotated[tyro.conf.Positional[str], named("vN")],
        target: Annotated[tyro.conf.Positional[str | None], named("[vM]")] = None,
        lang: str | None = None,
    ) -> None:
        """Start a kernel version as a copy of another.

        Args:
            design: The design; DESIGN@LANGUAGE takes it in that language.
            version: The version to copy; v0 is the base.
            target: The number of the new version. DESIGN_vN vM, in two words, means the same.
            lang: Language, where the design exists in several.
        """
        name, _, other = design.partition("@")
        if target is None:
            target = version
        else:
            name = f"{name}_{version}"
        asked = lang or other or None
        package = next(iter(_packages_of(asked)), asked) if asked else None
        made = clone(name, target, root=kernels_dir(), package=package)
        if asked is None and (others := _other_packages(made[0].parent)):
            print(f"· taken from {made[0].parts[-4]}; --lang takes {', '.join(others)}")
        for path in made:
            print(relative(path))

    arguments.parse(run, sys.argv[1:] if argv is None else argv, "python -m mla_var3.app.clone")
    return 0


if __name__ == "__main__":
    front.run("mla_var3.app.clone:main")
