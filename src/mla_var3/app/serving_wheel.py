"""``nox -s wheel -- --serve``: builds a wheel of the serving calls with their kernels compiled.

The wheel imports torch and the standard library alone: no compiler, no DSL, nothing of the
workbench. It takes the place of the project's own package, so that both are not installed together.
"""

from __future__ import annotations

import base64
import hashlib
import importlib
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

import mla_var3
from mla_var3 import arguments, front
from mla_var3.errors import UsageError
from mla_var3.paths import out_dir, relative, write_atomic
from mla_var3.serving import kinds
from mla_var3.serving.launching import ARCH, COMPILER

PROG = "python -m mla_var3.app.serving_wheel"
PACKAGE = Path(mla_var3.__file__).parent
#: Modules that the calls and their commands import, below the package.
MODULES = (
    "__init__.py", "archs.py", "errors.py", "front.py", "inputs.py", "loader.py", "strides.py",
)  # fmt: skip
NAME = "mla_var3_serve"
#: The C library that the linked kernels ask for is that of the machine that links them.
TAG = "py3-none-linux_x86_64"
#: Groups of entry points that servers call in each of their processes, with the function for each.
PLUGINS = {"vllm.general_plugins": "vllm", "sglang.srt.plugins": "sglang"}


@dataclass(frozen=True)
class Options:
    """What to build.

    Attributes:
        serve: That this wheel is meant; the project's own is built without it.
        only: Only kernels whose name has this text; a call of another compiles it, or says so.
        to: Folder to write to.
    """

    serve: bool = False
    only: str = ""
    to: Path | None = None


def main(argv: Sequence[str] | None = None) -> int:
    """Build as the arguments say; returns the exit code.

    Raises:
        UsageError: No kernel has the text in its name.
    """
    given = sys.argv[1:] if argv is None else argv
    options = arguments.parse(
        Options, given, PROG, "Build a wheel whose kernels are compiled, to serve with."
    )
    chosen = [kind for kind in kinds.every() if options.only in kind.key]
    if not chosen:
        known = ", ".join(kind.key for kind in kinds.every())
        raise UsageError(f"--only={options.only}: no kernel is called so ({known})")
    console = Console(soft_wrap=True, highlight=False)
    compiler = importlib.import_module(COMPILER)
    with tempfile.TemporaryDirectory() as folder:
        for number, kind in enumerate(chosen, 1):
            console.print(f"[{number}/{len(chosen)}] {kind.key}", markup=False)
            compiler.compiled(kind, ARCH, Path(folder, kind.key))
        path = write(Path(folder), options.to or out_dir() / "wheels")
    console.print(f"wrote {relative(path)}: {path.stat().st_size / (1 << 20):.1f} MiB")
    return 0


def write(compiled: Path, to: Path) -> Path:
    """Write the wheel, whole.

    Args:
        compiled: A folder per kernel.
        to: Where the wheel goes.
    """
    version = mla_var3.__version__
    info = f"{NAME}-{version}.dist-info"
    content = dict(_files(compiled))
    content[f"{info}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: mla_var3\nRoot-Is-Purelib: false\nTag: {TAG}\n".encode()
    )
    content[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: {NAME.replace('_', '-')}\nVersion: {version}\n"
        "Summary: MLA decode over pages for H100 and H200, behind FlashMLA's and FlashInfer's "
        "calls\nRequires-Python: >=3.11\nRequires-Dist: torch>=2.6\n"
    ).encode()
    content[f"{info}/entry_points.txt"] = "".join(
        f"[{group}]\nmla_var3 = mla_var3.serving.servers:{function}\n"
        for group, function in PLUGINS.items()
    ).encode()
    rows = [f"{name},{_digest(data)},{len(data)}" for name, data in content.items()]
    content[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""]).encode()
    with tempfile.TemporaryFile() as whole:
        with zipfile.ZipFile(whole, "w") as archive:
            for name, data in content.items():
                # A fixed time: the same kernels give the same wheel.
                member = zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0))
                archive.writestr(member, data, zipfile.ZIP_DEFLATED)
        whole.seek(0)
        path = to / f"{NAME}-{version}-{TAG}.whl"
        write_atomic(path, whole.read())
    return path


def _files(compiled: Path) -> Iterator[tuple[str, bytes]]:
    sources: list[Any] = [PACKAGE / name for name in MODULES]
    for path in [*sources, *sorted((PACKAGE / "serving").glob("*.py"))]:
        yield f"mla_var3/{path.relative_to(PACKAGE).as_posix()}", path.read_bytes()
    for path in sorted(x for x in compiled.rglob("*") if x.is_file()):
        place = path.relative_to(compiled).as_posix()
        yield f"mla_var3/serving/compiled/{ARCH}a/{place}", path.read_bytes()


def _digest(data: bytes) -> str:
    raw = base64.urlsafe_b64encode(hashlib.sha256(data).digest())
    return f"sha256={raw.decode().rstrip('=')}"


if __name__ == "__main__":
    front.run("mla_var3.app.serving_wheel:main")
