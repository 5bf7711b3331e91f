"""Drafts an adopted file from one run of a kernel file; the runs of CUTLASS examples for that."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mla_var3.campaign import contract, running, skeleton
from mla_var3.errors import UsageError
from mla_var3.examples.store import id_of
from mla_var3.gpuless import suites
from mla_var3.paths import relative, write_atomic

#: The suite that says how examples are run small.
SUITE = "cutlass-examples"


def examples() -> dict[str, suites.Script]:
    """The shortest run of each CUTLASS example in the conformance suite, by the example's id."""
    known: dict[str, suites.Script] = {}
    for run in suites.find(SUITE).runs():
        known.setdefault(id_of(run.path), run)
    return known


def draft(
    path: Path,
    target: Path,
    arch: str | None,
    rest: Sequence[str],
    own_reference: bool = False,
) -> skeleton.Shown:
    """Write the skeleton for a file, from one run of it.

    Args:
        path: The file.
        target: Where the skeleton goes.
        arch: What PTX runs as compiled for.
        rest: The file's own command line.
        own_reference: Whether what the file compares by itself comes first.

    Raises:
        UsageError: There is a file already.
        InputError: Nothing can be drafted.
    """
    if target.exists():
        raise UsageError(f"{target} exists; nox -s adopt -- {target} says whether it is complete")
    kind = contract.kind_of(path)
    archs = running.archs_of(kind, arch)
    print(f"running {relative(path)} once, as {kind}", flush=True)
    shown = skeleton.show(path, rest, archs)
    fixed = arch if arch and kind in ("cute", "triton") else ""
    content = skeleton.text(path, target, shown, rest, fixed, own_reference)
    write_atomic(target, content)
    print(f"kernels: {', '.join(shown.kernels) or 'none'}")
    print(f"wrote {relative(target)}")
    if skeleton.TODO in content:
        print("next: write its reference, then nox -s adopt -- " + relative(target))
    else:
        print(f"next: nox -s profile -- {relative(target)}")
    return shown
