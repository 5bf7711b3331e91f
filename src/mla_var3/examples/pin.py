"""Reads which commit of CUTLASS is pinned, and says where it lies and whether it is fetched."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from mla_var3 import inputs
from mla_var3.errors import KnowledgeError

PIN = "third_party/cutlass.toml"
FOLDER = "third_party/cutlass"
#: Names the commit that a fetched tree is of.
STAMP = ".commit"
#: Names a checkout (or bare repository) of CUTLASS that ``fetch`` takes the commit from.
CHECKOUT_VARIABLE = "CUTLASS_DIR"
EXAMPLES = "examples/python/CuTeDSL"


class Pin(BaseModel):
    """What ``third_party/cutlass.toml`` says.

    Attributes:
        address: Where the repository can be fetched and read.
        tag: Release.
        commit: The commit that the tag names.
        license: Under which terms it may be read.
        folders: What is fetched of it.
        documents: What its C++ documents are made from.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    address: str = Field(pattern=r"^https://[\w.-]+(/[\w.-]+)+$")
    tag: str = Field(pattern=r"^v\d+\.\d+\.\d+$")
    commit: str = Field(pattern=r"^[0-9a-f]{40}$")
    license: str
    folders: tuple[str, ...] = Field(min_length=1)
    documents: tuple[str, ...] = ()


def load(root: Path) -> Pin:
    """Read the pin of a checkout.

    Raises:
        KnowledgeError: It is missing or not sound.
    """
    with inputs.faults_as(KnowledgeError, PIN):
        return Pin.model_validate(inputs.read_toml(root / PIN))


@dataclass(frozen=True)
class Tree:
    """A fetched tree of the pinned commit.

    Attributes:
        pin: The pin.
        root: Folder that stands for the repository's top.
    """

    pin: Pin
    root: Path

    @property
    def examples(self) -> Path:
        """Folder of the examples."""
        return self.root / EXAMPLES

    def address(self, path: str, line: int | None = None) -> str:
        """Where a file of the pinned commit, or a line of it, can be read."""
        anchor = "" if line is None else f"#L{line}"
        return f"{self.pin.address}/blob/{self.pin.commit}/{path}{anchor}"

    def file(self, path: str) -> Path:
        """A file of the tree.

        Args:
            path: Below the repository's top, or below the folder of the examples.

        Raises:
            KnowledgeError: The tree has no such file.
        """
        for base in (self.root, self.examples):
            found = (base / path).resolve()
            if found.is_file() and found.is_relative_to(self.root.resolve()):
                return found
        raise KnowledgeError(
            f"CUTLASS {self.pin.tag} has no {path} below {EXAMPLES}; examples move between "
            "releases, and `examples index` tells which are there"
        )


def tree(root: Path) -> Tree:
    """The fetched tree of a checkout.

    Raises:
        KnowledgeError: Nothing is fetched, or another commit than the pinned one.
    """
    pin, folder = load(root), root / FOLDER
    stamp = folder / STAMP
    if not stamp.is_file():
        given = os.environ.get(CHECKOUT_VARIABLE)
        source = (
            f"which copies the pinned commit from {CHECKOUT_VARIABLE}={given}" if given else
            f"with {CHECKOUT_VARIABLE} set to a checkout of CUTLASS where there is no network"
        )  # fmt: skip
        raise KnowledgeError(
            f"{FOLDER} holds no fetched tree; run `nox -s examples -- fetch` ({source})"
        )
    found = stamp.read_text(encoding="utf-8").strip()
    if found != pin.commit:
        raise KnowledgeError(
            f"{FOLDER} is commit {found[:12]}, and {PIN} pins {pin.tag} ({pin.commit[:12]}); run "
            "`nox -s examples -- fetch`"
        )
    return Tree(pin, folder)
