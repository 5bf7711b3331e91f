"""What a version and the names that it binds are called in another version of its design."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mla_var3.errors import CloneError

PACKAGE = "mla_var3.kernel"
_PATH = re.compile(r"[A-Za-z_]\w*(?:[./][A-Za-z_]\w*)*")


@dataclass(frozen=True)
class Names:
    """How a version is called, and how its clone is to be called.

    Attributes:
        root: The kernels folder.
        folder: The design's folder: ``<root>/<language package>/<layer>/<design>``.
        source: Version that is copied, ``v0`` for the base.
        target: Version that is made.
        others: All other designs, so that ``flash_mla`` is not taken for part of
            ``flash_mla_split_kv``.
    """

    root: Path
    folder: Path
    source: str
    target: str
    others: frozenset[str] = frozenset()

    @property
    def design(self) -> str:
        """Name of the design."""
        return self.folder.name

    @property
    def is_base(self) -> bool:
        """Whether the base version is copied, whose names carry no version."""
        return self.source == "v0"

    @property
    def source_module(self) -> str:
        """Name of the version's package and of the module in it."""
        return self.design if self.is_base else f"{self.design}_{self.source}"

    @property
    def target_module(self) -> str:
        """The same of the clone."""
        return f"{self.design}_{self.target}"

    @functools.cached_property
    def design_path(self) -> tuple[str, ...]:
        """The design's package as ``mla_var3 kernel <language> <layer> <design>``."""
        return (*PACKAGE.split("."), *self.folder.relative_to(self.root).parts)

    @property
    def package_path(self) -> tuple[str, ...]:
        """The version's package."""
        return (*self.design_path, self.source_module)

    def rename(self, name: str) -> str:
        """A name with the version in it replaced, in each of the three spellings.

        ``flash_mla_v1_reduce``, ``FlashMlaV1Plan`` and ``FLASH_MLA_V1_ROWS`` name v1;
        ``flash_mla_reduce``, ``FlashMlaPlan`` and ``FlashMlaBasePlan`` name the base. Other names
        stay.
        """
        name = self._rename_spelling(name, str.lower, "_", "v", "[0-9A-Za-z]")
        name = self._rename_spelling(name, str.upper, "_", "V", "[0-9A-Za-z]")
        name = self._rename_spelling(name, _camel, "", "V", "[0-9a-z]")
        if self.is_base:
            # FlashMlaBasePlan, where the design's own classes are called FlashMlaPlan.
            clone = f"{_camel(self.design)}V{self.target[1:]}"
            name = re.sub(rf"(?<![0-9A-Za-z]){clone}Base(?![a-z])", clone, name)
        return name

    def _rename_spelling(
        self, name: str, spell: Callable[[str], str], separator: str, letter: str, goes_on: str
    ) -> str:
        pattern = _spelling(
            frozenset({self.design, *self.others}), spell, separator, letter, goes_on
        )
        source = None if self.is_base else letter + self.source[1:]

        def replace(match: re.Match[str]) -> str:
            if match.group(1) != spell(self.design) or match.group(2) != source:
                return match.group(0)
            return f"{match.group(1)}{separator}{letter}{self.target[1:]}"

        return pattern.sub(replace, name)


@functools.cache
def _spelling(
    designs: frozenset[str], spell: Callable[[str], str], separator: str, letter: str, goes_on: str
) -> re.Pattern[str]:
    """A design's name in one spelling, with a version or without."""
    # The longest design comes first: flash_mla_split_kv is not flash_mla.
    either = "|".join(re.escape(spell(d)) for d in sorted(designs, key=len, reverse=True))
    return re.compile(
        rf"(?<![0-9A-Za-z])({either})(?:{separator}({letter}\d+)(?!{goes_on}))?(?!{goes_on})"
    )


def _camel(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


class Rewriter:
    """Renames in the sources of one version's package.

    Args:
        names: What is renamed into what.
        sources: Text of each Python file of the package, by path below it.

    Raises:
        CloneError: A file is not valid Python.
    """

    def __init__(self, names: Names, sources: dict[Path, str]) -> None:
        self.names = names
        self.bound = {names.source_module}
        for path, text in sources.items():
            try:
                tree = ast.parse(text)
            except SyntaxError as error:
                raise CloneError(
                    f"{names.source_module}/{path}:{error.lineno}: {error.msg}, so it is no "
                    "version that can be cloned"
                ) from error
            self.bound |= {path.stem, *path.parts[:-1], *_bound(tree)}
        # A module says most of its names many times.
        self._token = functools.cache(self._renamed)
        renamed: dict[str, str] = {}
        for name in sorted(self.bound):
            other = renamed.setdefault(names.rename(name), name)
            if other != name:
                raise CloneError(
                    f"{other} and {name} of {names.source_module} would both become "
                    f"{names.rename(name)}; rename one of them first"
                )

    def identifier(self, name: str) -> str:
        """Rename what the package itself binds; what it imports from elsewhere stays."""
        return self.names.rename(name) if name in self.bound else name

    def dotted(self, parts: Sequence[str]) -> tuple[str, ...]:
        """Rename an absolute module path; only what lies inside the version's package changes."""
        own = self.names.package_path
        if tuple(parts[: len(own)]) != own:
            return tuple(parts)
        kept = len(self.names.design_path)
        return (*parts[:kept], *(self.identifier(part) for part in parts[kept:]))

    def text(self, text: str, *, prose: bool) -> str:
        """Rename in a string literal, or in ``prose``: a docstring or a comment.

        In prose the version is also renamed where it is called ``v1``, or ``base version``, and
        a bare design name is taken for the design.
        """
        text = _PATH.sub(lambda match: self._token(match.group(0), prose), text)
        if not prose:
            return re.sub(rf"""^(["']){self.names.source}\1$""", rf"\1{self.names.target}\1", text)
        text = re.sub(rf"(?<![\w.]){self.names.source}(?!\w|\.\d)", self.names.target, text)
        if self.names.is_base:
            text = re.sub(r"\b(?:[Tt]he )?[Bb]ase version\b", self.names.target, text)
        return text

    def _renamed(self, token: str, prose: bool) -> str:
        parts = re.split(r"([./])", token)
        words, separators = parts[::2], [*parts[1::2], ""]
        kept = self._design_words(words)
        if not kept and prose and words == [self.names.design]:
            return token
        renamed = [*words[:kept], *(self._word(word) for word in words[kept:])]
        return "".join(word + mark for word, mark in zip(renamed, separators, strict=True))

    def _word(self, word: str) -> str:
        # A name with a version in it is unmistakable; a name of the base is only its own if bound.
        return self.identifier(word) if self.names.is_base else self.names.rename(word)

    def _design_words(self, words: Sequence[str]) -> int:
        """How many leading words of a path lead to the design and are not a version of it."""
        layer_and_design = self.names.design_path[-2:]
        for index in range(len(words) - 1):
            if tuple(words[index : index + 2]) == layer_and_design:
                return index + 2
        design = self.names.design
        return 1 if len(words) > 1 and words[0] == design and words[1].startswith(design) else 0

    def path(self, path: Path) -> Path:
        """The path below the clone's package of the file at ``path`` below the source's."""
        folders = [self.identifier(part) for part in path.parts[:-1]]
        return Path(*folders, self.identifier(path.stem) + path.suffix)


def _bound(tree: ast.AST) -> Iterator[str]:
    """Names that a module binds, other than by importing them."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name
            case ast.arg():
                yield node.arg
            case ast.Name(ctx=ast.Store()):
                yield node.id
            case ast.Attribute(ctx=ast.Store()):
                yield node.attr
            case ast.alias(asname=str() as name):
                yield name
