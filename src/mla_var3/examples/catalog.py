"""Lists the fetched CUTLASS examples, each with its files, category and arch; finds one by id."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from mla_var3.blobs import blob_id
from mla_var3.errors import KnowledgeError
from mla_var3.examples.checklist import Source
from mla_var3.examples.pin import Tree
from mla_var3.examples.store import id_of
from mla_var3.languages.cute import arch as archs

#: Folders of examples, below the folder of all of them.
FOLDERS = (
    "cute/ampere", "cute/hopper", "cute/blackwell", "cute/blackwell_geforce", "cute/tvm_ffi",
    "cute_ext", "dsl_tutorials", "experimental",
)  # fmt: skip

_BY_FOLDER = {
    "ampere": "sm_80", "hopper": "sm_90", "blackwell": "sm_100", "blackwell_geforce": "sm_120",
}  # fmt: skip
#: Tried in turn for an example whose folder names no arch.
_BY_FEATURES = ("sm_80", "sm_90", "sm_100", "sm_120")
#: Words in names of the experimental primitives, which are PTX's, and the arch that PTX wants.
_BY_WORDS = (
    (re.compile(r"tcgen05|tmem", re.IGNORECASE), "sm_100"),
    (re.compile(r"bulk|cluster|tensormap|elect_sync|stmatrix|mapa\b|^tma_"), "sm_90"),
)


@dataclass(frozen=True)
class Entry:
    """One Python file below the examples' folders.

    Attributes:
        tree: The fetched tree.
        path: Below the folder of the examples.
    """

    tree: Tree
    path: str

    @property
    def name(self) -> str:
        """Its id."""
        return id_of(self.path)

    @property
    def file(self) -> Path:
        """Where it lies."""
        return self.tree.examples / self.path

    @cached_property
    def content(self) -> bytes:
        """Its bytes.

        Raises:
            KnowledgeError: It vanished.
        """
        try:
            return self.file.read_bytes()
        except OSError as error:
            raise KnowledgeError(
                f"{self.path} vanished from the fetched tree ({error.strerror}); run "
                "`nox -s examples -- fetch`"
            ) from error

    @cached_property
    def source(self) -> Source:
        """Its text and syntax tree."""
        return Source(self.content.decode("utf-8"))

    @property
    def blob(self) -> str:
        """Git's id of the content."""
        return blob_id(self.content)

    @property
    def category(self) -> str:
        """Its folder, without those that say nothing: ``hopper/attention``."""
        parts = [part for part in self.path.split("/")[:-1] if part not in ("cute", "kernel")]
        return "/".join(parts)

    @property
    def arch(self) -> str:
        """The arch it is written for, by its name, its folder, else by what it uses."""
        if "sm103" in self.path:
            return "sm_103"
        for part in self.path.split("/"):
            if part in _BY_FOLDER:
                return _BY_FOLDER[part]
        names = set(self.source.names)
        used = archs.features(names)
        fitting = (arch for arch in _BY_FEATURES if archs.refusal(used, arch) is None)
        found = next(fitting, "sm_100")
        told = (arch for words, arch in _BY_WORDS if any(words.search(name) for name in names))
        return max(found, next(told, found), key=archs.number)

    @property
    def is_script(self) -> bool:
        """Whether running the file does something."""
        return self.source.acts


def entries(tree: Tree) -> list[Entry]:
    """All examples of a tree, by path.

    Raises:
        KnowledgeError: There are none, or two would have one id.
    """
    found = [
        Entry(tree, file.relative_to(tree.examples).as_posix())
        for folder in FOLDERS
        for file in sorted((tree.examples / folder).rglob("*.py"))
        if file.name != "__init__.py"
    ]
    if not found:
        raise KnowledgeError(f"{tree.examples} holds no example; run `nox -s examples -- fetch`")
    by_name: dict[str, str] = {}
    for entry in found:
        if entry.name in by_name:
            raise KnowledgeError(
                f"{by_name[entry.name]} and {entry.path} would both be {entry.name}"
            )
        by_name[entry.name] = entry.path
    return found


def find(tree: Tree, asked: str) -> Entry:
    """One example by its path, or by its id.

    Raises:
        KnowledgeError: There is none such.
    """
    by_name = {entry.name: entry for entry in entries(tree)}
    if asked in by_name:
        return by_name[asked]
    file = tree.file(asked)
    for entry in by_name.values():
        if entry.file.resolve() == file:
            return entry
    raise KnowledgeError(f"{asked} is in the tree and no example ({', '.join(FOLDERS)})")
