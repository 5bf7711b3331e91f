"""Reads an adopted file and its three functions (``inputs``, ``reference``, ``launch``).

``inputs(device, n=4096)`` makes the inputs, a mapping by name; its further parameters are sizes.
``reference(**inputs)`` computes the right result by plain torch: a tensor, several, or a mapping.
``launch(**inputs)`` launches the kernel as its users do and returns the same; None where it writes
to inputs, which ``reference`` then names. ``CHECKS``, a list of sizes, ``TOLERANCE``, and ``ARCH``,
what PTX runs as compiled for, may follow.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from mla_var3.campaign.reaching import imports, reached
from mla_var3.errors import HyperMlaError, InputError, PlanError
from mla_var3.evidence import Scalar
from mla_var3.inputs import read_python

if TYPE_CHECKING:
    import torch

FUNCTIONS = ("inputs", "reference", "launch")
CHECKS, TOLERANCE, ARCH = "CHECKS", "TOLERANCE", "ARCH"
#: How a file's kernels run on a CPU: cuTile's interpreter, PTX in the emulator, or torch alone.
Kind = Literal["cutile", "cute", "triton", "torch"]
#: Module whose import tells the kind, the more particular first.
_IMPORTS: Mapping[str, Kind] = {"cutlass": "cute", "triton": "triton", "cuda.tile": "cutile"}
#: Largest accepted relative error by the element type of an output; TF32 rounds to 11 bits.
ALLOWED = {"float64": 1e-6, "float32": 1e-3, "float16": 2e-3, "bfloat16": 1e-2}
#: Of narrower types.
ALLOWED_NARROW = 6.4e-2


@dataclass(frozen=True)
class Contract:
    """The three functions of a file.

    Attributes:
        path: The file.
        inputs: Makes the inputs for a device and sizes.
        reference: What is right.
        launch: Launches the kernel.
        sizes: Sizes with their default values.
        checks: Sizes that ``check`` runs; the default ones where the file names none.
        tolerance: Largest relative error; by element type where None.
    """

    path: Path
    inputs: Callable[..., Mapping[str, Any]]
    reference: Callable[..., Any]
    launch: Callable[..., Any]
    sizes: Mapping[str, Scalar]
    checks: tuple[Mapping[str, Scalar], ...]
    tolerance: float | None = None

    @property
    def name(self) -> str:
        """What records call it: the file's name as an identifier."""
        return name_of(self.path)

    def problem(self, sizes: Mapping[str, Scalar]) -> dict[str, Scalar]:
        """All sizes, those given in place of the defaults.

        Raises:
            PlanError: ``inputs`` does not take one of them.
        """
        for name in sizes:
            if name not in self.sizes:
                known = ", ".join(self.sizes) or "none"
                raise PlanError(f"{self.path}: inputs takes no size {name} (known: {known})")
        return {**self.sizes, **sizes}


def name_of(path: Path) -> str:
    """A file's name as records write it: small letters, digits and underscores."""
    stem = "".join(c if c.isalnum() and c.isascii() else "_" for c in path.stem.lower())
    return stem if stem[:1].isalpha() else f"k_{stem}"


def has_contract(path: Path) -> bool:
    """Whether a file defines the three functions."""
    return set(FUNCTIONS) <= _defined(path)


def kind_of(path: Path) -> Kind:
    """What runs a file's kernels, by what it and the files beside it import."""
    found = [kind_by(file) for file in reached(path)]
    return next((kind for kind in _IMPORTS.values() if kind in found), "torch")


def kind_by(file: Path) -> Kind:
    """What runs the kernels of one file, by its own imports."""
    names = imports(file)
    return next(
        (kind for module, kind in _IMPORTS.items()
         if any(name == module or name.startswith(f"{module}.") for name in names)),
        "torch",
    )  # fmt: skip


def load(path: Path) -> Contract:
    """Import a file and read its contract; what runs its kernels has to be set up before.

    Raises:
        InputError: It cannot be read, lacks a function, or one of them does not fit.
        PlanError: Importing it fails; names the line.
    """
    defined = _defined(path)
    if lacking := [name for name in FUNCTIONS if name not in defined]:
        raise InputError(
            str(path), f"defines no {' and no '.join(lacking)}; nox -s adopt -- {path} writes them"
        )
    module = _module(path)
    sizes = _sizes(path, module.inputs)
    checks = getattr(module, CHECKS, None)
    made = Contract(
        path.resolve(), module.inputs, module.reference, module.launch, sizes, ({},),
        _tolerance(path, getattr(module, TOLERANCE, None)),
    )  # fmt: skip
    if checks is None:
        return made
    if not isinstance(checks, Sequence) or not checks or not all(
        isinstance(one, Mapping) for one in checks
    ):  # fmt: skip
        raise InputError(str(path), f"has {CHECKS} that is not a list of sizes by name: {checks!r}")
    for one in checks:
        made.problem(one)
    return Contract(**{**vars(made), "checks": tuple(checks)})


def _defined(path: Path) -> set[str]:
    """Names that a file defines or assigns."""
    found = set()
    for node in read_python(path).body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {n.id for target in node.targets for n in ast.walk(target)
                      if isinstance(n, ast.Name)}  # fmt: skip
    return found


def sizes_named(path: Path) -> list[str] | None:
    """Parameters of ``inputs`` behind the device, read without running the file.

    None where it is not a function of the file's own.
    """
    for node in read_python(path).body:
        if isinstance(node, ast.FunctionDef) and node.name == "inputs":
            return [a.arg for a in (*node.args.args[1:], *node.args.kwonlyargs)]
    return None


def calls_launch(path: Path) -> bool:
    """Whether a file's reference is its launch, or calls it."""
    for node in read_python(path).body:
        match node:
            case ast.FunctionDef(name="reference") | ast.Assign(targets=[ast.Name(id="reference")]):
                if any(isinstance(n, ast.Name) and n.id == "launch" for n in ast.walk(node)):
                    return True
    return False


def constant(path: Path, name: str) -> str:
    """The text that a file assigns to a name; empty where it assigns none.

    Raises:
        InputError: It assigns something else.
    """
    for node in read_python(path).body:
        match node:
            case ast.Assign(targets=[ast.Name(id=found)], value=value) if found == name:
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    return value.value
                raise InputError(str(path), f"has {name} that is not a text such as 'sm_90'")
    return ""


def _module(path: Path) -> Any:
    """The file as a module under a name of its own; where it fails, one sentence."""
    full = path.resolve()
    name = f"adopted_{name_of(full)}_{hashlib.sha256(str(full).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, full)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # Compilers look up there what they trace.
    _forget(_neighbors)  # As they are now, as the file is.
    with beside(full), one_sentence(f"{path} cannot be imported"):
        spec.loader.exec_module(module)
    return module


#: Modules that adopted files imported from beside them, by name, with the file of each.
_neighbors: dict[str, Path] = {}


@contextlib.contextmanager
def beside(path: Path) -> Iterator[None]:
    """The file's folder is where imports look first; modules of another one's folder are not."""
    folder, mine = str(path.resolve().parent), set(reached(path))
    _forget([name for name, file in _neighbors.items() if file not in mine])
    before = set(sys.modules)
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)
        for name in set(sys.modules) - before:
            file = Path(getattr(sys.modules[name], "__file__", None) or "").resolve()
            if file in mine:
                _neighbors[name] = file


def _forget(names: Iterable[str]) -> None:
    """Have modules be imported anew: two versions of a kernel call theirs by the same name."""
    for name in list(names):
        sys.modules.pop(name, None)
        _neighbors.pop(name, None)


@contextlib.contextmanager
def one_sentence(what: str) -> Iterator[None]:
    """Turn what a user's code raises into a PlanError that names its last line.

    Args:
        what: The start of the sentence.
    """
    try:
        yield
    except (HyperMlaError, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # A file that ends the process is no right one.
        last = traceback.extract_tb(error.__traceback__)[-1]
        said = " ".join(str(error).split()) or "no word"
        raise PlanError(
            f"{what}: {type(error).__name__}: {said[:400]} ({last.filename}, line {last.lineno})"
        ) from error


def _sizes(path: Path, function: Callable[..., Any]) -> dict[str, Scalar]:
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters or parameters[0].name != "device":
        raise InputError(str(path), "has inputs whose first parameter is not device")
    found: dict[str, Scalar] = {}
    for one in parameters[1:]:
        if not isinstance(one.default, int | float | str | bool):
            raise InputError(
                str(path), f"has inputs whose size {one.name} has no default that is a plain value"
            )
        found[one.name] = one.default
    return found


def _tolerance(path: Path, value: Any) -> float | None:
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool)
                         and 0 < value < 1):  # fmt: skip
        return value
    raise InputError(str(path), f"has {TOLERANCE} that is no number between 0 and 1: {value!r}")


def allowed(contract: Contract, output: torch.Tensor) -> float:
    """Largest relative error of an output."""
    if contract.tolerance is not None:
        return contract.tolerance
    return ALLOWED.get(str(output.dtype).removeprefix("torch."), ALLOWED_NARROW)


def tensors(given: Mapping[str, Any]) -> list[torch.Tensor]:
    """Those of the inputs that are tensors."""
    return [value for value in given.values() if hasattr(value, "untyped_storage")]


def narrowest(those: Iterable[torch.Tensor]) -> tuple[torch.Tensor | None, str]:
    """The first tensor of the narrowest floating-point type, and that type; fp32 without any."""
    floats = (one for one in those if one.is_floating_point())
    least = min(floats, key=lambda one: one.element_size(), default=None)
    return least, "float32" if least is None else str(least.dtype).removeprefix("torch.")


def outputs(
    path: Path, who: str, given: Mapping[str, Any], result: Any, names: Sequence[str] = ()
) -> Any:
    """Tensors by name of what ``launch`` or ``reference`` returned.

    Args:
        path: The file.
        who: Which of the two.
        given: The inputs, which ``launch`` may have written to.
        result: What was returned.
        names: Names that the other function gave.

    Raises:
        InputError: It is nothing that can be compared.
    """
    import torch

    if result is None and names and all(name in given for name in names):
        result = {name: given[name] for name in names}
    if isinstance(result, torch.Tensor):
        result = (result,)
    told = type(result).__name__
    if isinstance(result, tuple | list):
        own = names if len(names) == len(result) else [f"out{i}" for i in range(len(result))]
        result = dict(zip(own, result, strict=True))
    if isinstance(result, Mapping) and result and all(
        isinstance(one, torch.Tensor) for one in result.values()
    ):  # fmt: skip
        return dict(result)
    raise InputError(
        str(path), f"{who} must give tensors to compare, and gives {told}; see "
        "nox -s adopt -- --help"
    )  # fmt: skip
