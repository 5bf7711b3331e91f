"""Drafts the three functions of adoption for a user's file, from one run of it on the CPU."""

from __future__ import annotations

import contextlib
import os
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from mla_var3.campaign import contract, running, scripts
from mla_var3.campaign.contract import Kind
from mla_var3.errors import InputError
from mla_var3.gpuless import scripts as runner

#: The line that a user writes.
TODO = "raise NotImplementedError"
#: Values of a tensor of integers up to which they are made anew at random.
MOST_INTEGER = 1 << 20


@dataclass(frozen=True)
class Call:
    """A call of a function of the file with tensors, inside which kernels were launched.

    Attributes:
        function: Its name.
        arguments: What made each argument, as an expression.
        launches: Kernels launched inside.
        returns: Whether it returned tensors.
    """

    function: str
    arguments: dict[str, str]
    launches: int
    returns: bool


@dataclass
class Shown:
    """What one run of a file showed.

    Attributes:
        kind: What runs its kernels.
        call: The outermost function with tensors that launched kernels; None without one.
        compared: What the file compared by itself.
        kernels: Kernels that it launched, with grid.
        error: What ended it early.
    """

    kind: Kind
    call: Call | None = None
    compared: scripts.Compared = field(default_factory=scripts.Compared)
    kernels: list[str] = field(default_factory=list)
    error: str = ""


def show(path: Path, arguments: Sequence[str], archs: Sequence[str]) -> Shown:
    """Run a file once on the CPU and keep what tells how to call it."""
    kind = contract.kind_of(path)
    shown = Shown(kind)
    with running.on_cpu(kind, archs or running.DEFAULT_ARCHS["cute"]) as trace:
        with scripts.comparing() as compared, watching(path, trace.live) as calls:
            ended = runner.run(path, arguments)
        shown.compared = compared
    shown.kernels = [f"{running.short(one.kernel)}{list(one.grid)}" for one in trace.launches]
    if ended.error is not None:
        said = " ".join(str(ended.error).split())[:200]
        shown.error = type(ended.error).__name__ + (f": {said}" if said else "")
    launching = [call for call in calls if call.launches or kind == "torch"]
    shown.call = launching[0] if launching else None
    return shown


@contextlib.contextmanager
def watching(path: Path, live: Callable[[], int]) -> Iterator[list[Call]]:
    """Keeps calls of a file's functions that take tensors, the outermost ones, in order."""
    found: list[Call] = []
    names, open_ = {str(path), str(path.resolve())}, list[tuple[FrameType, dict[str, str], int]]()

    def profile(frame: FrameType, event: str, value: Any) -> None:
        if event == "call" and not open_ and frame.f_code.co_filename in names:
            arguments = _arguments(frame)
            if arguments is not None:
                open_.append((frame, arguments, live()))
        elif event == "return" and open_ and frame is open_[0][0]:
            _, arguments, before = open_.pop()
            name, launched = frame.f_code.co_name, live() - before
            found.append(Call(name, arguments, launched, _has_tensors(value)))

    sys.setprofile(profile)
    try:
        yield found
    finally:
        sys.setprofile(None)


def _arguments(frame: FrameType) -> dict[str, str] | None:
    """Expressions that make a call's arguments; None without a tensor, or with what has none."""
    code = frame.f_code
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    if code.co_name.startswith("<") or code.co_flags & 0x0C:  # *args or **kwargs
        return None
    values = {name: frame.f_locals.get(name) for name in names}
    if not any(_is_tensor(value) for value in values.values()):
        return None
    made = {name: expression(value) for name, value in values.items()}
    return None if any(one is None for one in made.values()) else made  # type: ignore[return-value]


def _is_tensor(value: Any) -> bool:
    import torch

    return type(value) in (torch.Tensor, torch.nn.Parameter)


def _has_tensors(value: Any) -> bool:
    return _is_tensor(value) or (isinstance(value, tuple | list) and any(map(_is_tensor, value)))


def expression(value: Any) -> str | None:
    """What makes a value like it; None where nothing plain does."""
    import torch

    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    if isinstance(value, torch.dtype):
        return str(value)
    if not _is_tensor(value):
        return None
    shape = ", ".join(map(str, value.shape)) or "()"
    dtype = value.dtype
    if dtype == torch.bool:
        return f"torch.rand({shape}, device=device) < 0.5"
    if dtype.is_complex:
        return f"torch.randn({shape}, dtype={dtype}, device=device)"
    if dtype.is_floating_point:
        cast = "" if dtype == torch.float32 else f".to({dtype})"
        return f"torch.randn({shape}, device=device){cast}"
    least, most = (int(value.min()), int(value.max())) if value.numel() else (0, 1)
    if most > MOST_INTEGER:
        most = MOST_INTEGER
    return f"torch.randint({least}, {most + 1}, ({shape},), dtype={dtype}, device=device)"


# -- the text --------------------------------------------------------------------------------------


def text(
    path: Path,
    target: Path,
    shown: Shown,
    arguments: Sequence[str],
    arch: str,
    own_reference: bool = False,
) -> str:
    """The skeleton of a file.

    Args:
        path: The file.
        target: Where the skeleton will lie.
        shown: What one run showed.
        arguments: The file's own command line.
        arch: What PTX runs as compiled for; empty for the default.
        own_reference: Whether what the file compares by itself comes before its functions.

    Raises:
        InputError: The run shows nothing to go by.
    """
    name = os.path.relpath(path.resolve(), target.resolve().parent)
    kernels = ", ".join(shown.kernels) or "none of its own"
    head = f'"""Adopted from {path.name}; kernels: {kernels}."""\n\n'
    fixed = f'ARCH = "{arch}"\n' if arch else ""
    compares = bool(shown.compared.pairs) and not shown.error
    if shown.call is not None and not (own_reference and compares):
        return head + _calling(name, shown.call) + fixed
    if compares:
        told = f', "{" ".join(arguments)}"' if arguments else ""
        tolerance = max(shown.compared.tolerance, 1e-2)
        return (
            f"{head}from mla_var3.campaign import script\n\n"
            f'inputs, reference, launch = script("{name}"{told})\n'
            f"TOLERANCE = {min(tolerance, 0.5):g}\n{fixed}"
        )
    why = f"it ends with {shown.error}" if shown.error else "it calls no function with tensors"
    if "No module named 'triton'" in shown.error:
        why += ", which is optional (pip install triton)"
    raise InputError(
        str(path), f"cannot be drafted from a run: {why}; write inputs, reference and launch "
        "yourself (nox -s adopt -- --help)"
    )  # fmt: skip


def _calling(name: str, call: Call) -> str:
    names = ", ".join(call.arguments)
    rows = "".join(f'        "{key}": {made},\n' for key, made in call.arguments.items())
    how = "what it returns" if call.returns else "a mapping of the inputs that it writes to"
    return textwrap.dedent(
        f"""\
        import torch

        from mla_var3.campaign import definitions

        theirs = definitions("{name}")


        def inputs(device):
            return {{
        ROWS    }}


        def reference({names}):
            {TODO}("{call.function} by plain torch: {how}")


        def launch({names}):
            return theirs.{call.function}({names})
        """
    ).replace("ROWS", rows)
