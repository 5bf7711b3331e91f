"""``conformance -- --peers``: runs other libraries' tests on our kernels in place of theirs.

``third_party/NAME.toml`` with a table ``[peer]`` says where a library's tests are and what makes
cases of them: a context manager that takes the checkout, puts our kernel where its tests import the
library's, and gives the cases. A case has a name, tiles that say how large it is, and ``run``.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from rich.console import Console

from mla_var3 import arguments, inputs
from mla_var3.errors import HyperMlaError, InputError, KnowledgeError, UnknownNameError, UsageError
from mla_var3.gpuless.suites import Suite, sources
from mla_var3.paths import out_dir, relative, repo_root, write_atomic

#: Largest case, in tiles, that is emulated where there is no GPU.
SMALL = 2
#: The GPU that tests believe in where there is none: they ask for Hopper.
HOPPER = (9, 0)


class Case(Protocol):
    """One case of a library's tests."""

    @property
    def name(self) -> str:
        """Name of the case, unique within its library."""

    @property
    def tiles(self) -> int:
        """Size of the case, by which small ones are chosen."""

    @property
    def run(self) -> Callable[[], Any]:
        """Runs it; raises where it fails."""


class Peer(BaseModel):
    """A library whose tests are run.

    Attributes:
        repository: Where it is.
        commit: What is run.
        license: Its license.
        cases: ``module:function`` that makes cases of its tests.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    repository: str
    commit: str = Field(pattern="^[0-9a-f]{40}$")
    license: str
    cases: str = Field(pattern=r"^[\w.]+:\w+$")

    def load(self) -> Callable[[Path], AbstractContextManager[Sequence[Case]]]:
        """What makes cases of a checkout."""
        name, _, function = self.cases.partition(":")
        made: Callable[[Path], AbstractContextManager[Sequence[Case]]]
        made = getattr(importlib.import_module(name), function)
        return made


@dataclass(frozen=True)
class Options:
    """What to run.

    Attributes:
        only: One library; all by default.
        checkout: A folder that has its sources, with --only; else they are fetched with git.
        match: Run only cases whose name has this text.
        sample: Cases to run of each library, chosen evenly; all by default.
        tiles: Largest case in tiles of 64 rows and 64 keys; without a GPU 2, which are emulated.
    """

    only: str = ""
    checkout: Path | None = None
    match: str = ""
    sample: int | None = None
    tiles: int | None = None


def main(argv: Sequence[str], prog: str) -> int:
    """Run as the arguments say; 1 where a case fails.

    Raises:
        UsageError: An option is out of range.
        UnknownNameError: There is no such library.
    """
    options = arguments.parse(
        Options, argv, prog, "Run the tests of other libraries on our kernel."
    )
    known = peers()
    if options.only and options.only not in known:
        raise UnknownNameError("library with tests", options.only, list(known))
    if options.checkout is not None and not options.only:
        raise UsageError("--checkout is of one library: name it with --only")
    if options.sample is not None and options.sample < 1:
        raise UsageError(f"--sample={options.sample}: at least 1 is needed")
    chosen = {options.only: known[options.only]} if options.only else known
    return max(run(name, peer, options) for name, peer in chosen.items())


def peers() -> dict[str, Peer]:
    """The libraries whose tests are run, by name.

    Raises:
        KnowledgeError: A file is not sound.
    """
    found = {}
    for path in sorted((repo_root() / "third_party").glob("*.toml")):
        try:
            if "peer" in (read := inputs.read_toml(path)):
                found[path.stem] = Peer(**read["peer"])
        except (InputError, TypeError, ValidationError) as error:
            said = " ".join(str(error).split())
            raise KnowledgeError(f"{relative(path)} is not a peer: {said}") from error
    return found


def run(name: str, peer: Peer, options: Options) -> int:
    """Run one library's cases and write what became of each; 1 where one fails."""
    import torch

    console = Console(soft_wrap=True, highlight=False)
    suite = Suite(
        name=name, repository=peer.repository, commit=peer.commit, license=peer.license, tests=()
    )
    checkout = sources(suite, options.checkout)
    on_gpu = torch.cuda.is_available()
    with contextlib.ExitStack() as stack:
        if not on_gpu:
            stack.enter_context(pretending())
        stack.enter_context(restored(torch))
        cases = stack.enter_context(peer.load()(checkout))
        kept = selected(cases, options, on_gpu)
        console.print(f"{name}: {len(kept)} of {len(cases)} cases{_why(kept, cases, on_gpu)}")
        outcomes = [outcome(case, console) for case in kept]
    path = out_dir() / "conformance" / f"{name}.json"
    table = {
        "peer": peer.model_dump(),
        "device": torch.cuda.get_device_name() if on_gpu else "",
        "of": len(cases),
        "cases": outcomes,
    }
    write_atomic(path, json.dumps(table, indent=1) + "\n")
    counts = Counter(one["outcome"] for one in outcomes)
    console.print(f"{name}: {', '.join(f'{n} {said}' for said, n in counts.items()) or 'none ran'}")
    console.print(f"wrote {relative(path)}")
    return int(counts["failed"] > 0)


def pretending() -> AbstractContextManager[None]:
    """Context in which tensors for a GPU are made on the CPU, where kernels are emulated."""
    from mla_var3.gpuless.cuda import cuda_on_cpu
    from mla_var3.gpuless.device import Device

    return cuda_on_cpu(Device(capability=HOPPER))


@contextlib.contextmanager
def restored(torch: Any) -> Iterator[None]:
    """Context that restores torch's default type and device, which tests change."""
    dtype, device = torch.get_default_dtype(), torch.get_default_device()
    try:
        yield
    finally:
        torch.set_default_dtype(dtype)
        torch.set_default_device(device)


def selected(cases: Sequence[Case], options: Options, on_gpu: bool) -> list[Case]:
    """The cases to run."""
    most = options.tiles if options.tiles is not None or on_gpu else SMALL
    kept = [case for case in cases if options.match in case.name]
    kept = [case for case in kept if most is None or case.tiles <= most]
    if options.sample is None or options.sample >= len(kept):
        return kept
    return [kept[i * len(kept) // options.sample] for i in range(options.sample)]


def _why(kept: Sequence[Case], cases: Sequence[Case], on_gpu: bool) -> str:
    if on_gpu or len(kept) == len(cases):
        return ""
    return "; without a GPU only small ones are run, in the emulator"


def outcome(case: Case, console: Console) -> dict[str, str]:
    """Run a case: its name, and passed, skipped or failed with the reason."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            case.run()
    except _skips() as error:
        return {"case": case.name, "outcome": "skipped", "reason": str(error)}
    except HyperMlaError as error:
        return _failed(case, str(error), console)
    except Exception as error:  # noqa: BLE001  # Whatever their test raises is its verdict.
        return _failed(case, f"{type(error).__name__}: {error}", console)
    return {"case": case.name, "outcome": "passed"}


def _skips() -> tuple[type[BaseException], ...]:
    """What a test of pytest's raises to be skipped; not every library's tests need it."""
    try:
        import pytest
    except ImportError:
        return ()
    return (pytest.skip.Exception,)


def _failed(case: Case, said: str, console: Console) -> dict[str, str]:
    reason = " ".join(said.split())[:400]
    console.print(f"  failed: {case.name}: {reason}")
    return {"case": case.name, "outcome": "failed", "reason": reason}
