"""What launches came to in processes that a program starts: each tells the first one at once.

So findings of a process that is killed are known too, up to where it was killed, and why a launch
was refused, of which the program itself learns no more than that it failed.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mla_var3.emulator.clusters import Launch
    from mla_var3.emulator.diagnostics import Diagnostic


@dataclass(frozen=True)
class Told:
    """What one launch of another process came to.

    Attributes:
        diagnostics: Everything that was found.
        refused: Why it was not run, where it was not.
    """

    diagnostics: list[Diagnostic]
    refused: str = ""


class Children:
    """The processes that are forked from the one that makes this.

    Args:
        folder: Where they leave what they tell, and what they compile.
    """

    def __init__(self, folder: Path) -> None:
        self.root, self.owner = folder, os.getpid()
        self.told: list[Told] | None = None
        #: Whether somebody knows of a refusal.
        self.reported = False

    @property
    def folder(self) -> Path:
        """A folder of this process alone: the newest PTX in it is of what it compiled last."""
        if os.getpid() == self.owner:
            return self.root
        own = self.root / f"of-{os.getpid()}"
        own.mkdir(exist_ok=True)
        return own

    def tell(self, launches: Sequence[Launch]) -> None:
        """Tell the first process of launches, if this is another one."""
        self._write([Told(launch.diagnostics) for launch in launches])

    def tell_refusal(self, error: BaseException) -> None:
        """Tell it of a launch that is not run."""
        self._write([Told([], str(error))])

    def _write(self, told: Sequence[Told]) -> None:
        if os.getpid() == self.owner:
            return
        with (self.root / f"{os.getpid()}.told").open("ab") as file:
            for one in told:
                pickle.dump(one, file)

    def heard(self) -> list[Told]:
        """What the others told until now, or until the folder was left."""
        if self.told is not None:
            return self.told
        told: list[Told] = []
        if os.getpid() != self.owner:
            return told
        for path in sorted(self.root.glob("*.told")):
            with path.open("rb") as file:
                try:
                    while True:
                        told.append(pickle.load(file))
                except (EOFError, pickle.UnpicklingError):  # One that was killed may tell half.
                    continue
        return told

    def refusal(self) -> str:
        """Why the first launch was refused that one of them asked for; nothing if none was."""
        return next((one.refused for one in self.heard() if one.refused), "")

    def close(self) -> None:
        """Leave the folder."""
        self.told = self.heard()
