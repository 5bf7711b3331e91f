"""Build a wheel from the tree and one through an sdist, and compare them with the sources.

Usage: python scripts/check-wheel.py WORK_DIR. Exits with 1 and the differing names when the two
wheels differ, or when a module, device file or devlog of the tree is missing from them.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def build(source: Path, out: Path, *kinds: str) -> list[Path]:
    """Build ``kinds`` (``--wheel``, ``--sdist``) of ``source`` into ``out``."""
    command = [sys.executable, "-m", "build", "--no-isolation", *kinds, "--outdir", str(out)]
    subprocess.run([*command, str(source)], check=True, stdout=subprocess.DEVNULL)
    return sorted(out.iterdir())


def contents(wheel: Path) -> dict[str, int]:
    """CRC of each file of the package, by name."""
    with zipfile.ZipFile(wheel) as archive:
        return {
            info.filename: info.CRC
            for info in archive.infolist()
            if info.filename.startswith("mla_var3/")
        }


def expected() -> set[str]:
    """Names that every wheel must hold."""
    package = ROOT / "src" / "mla_var3"
    names = {p.relative_to(package.parent).as_posix() for p in package.rglob("*.py")}
    kernels = ROOT / "kernels"
    names |= {f"mla_var3/kernel/{p.relative_to(kernels).as_posix()}" for p in kernels.rglob("*.py")}
    names |= {
        f"mla_var3/kernel/{p.relative_to(kernels).as_posix()}" for p in kernels.rglob("devlog.md")
    }
    devices = ROOT / "knowledge" / "devices"
    names |= {f"mla_var3/conf/devices/{p.name}" for p in devices.glob("*.toml")}
    return {n for n in names if "__pycache__" not in n}


def main(work: Path) -> int:
    """Build, compare, report."""
    [direct] = build(ROOT, work / "direct", "--wheel")
    [sdist] = build(ROOT, work / "sdist", "--sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(work / "unpacked", filter="data")
    [tree] = (work / "unpacked").iterdir()
    [through] = build(tree, work / "through", "--wheel")
    first, second = contents(direct), contents(through)
    faults = [f"differs between the wheels: {n}" for n in sorted(first.keys() ^ second.keys())]
    faults += [
        f"content differs: {n}" for n in sorted(first) if n in second and first[n] != second[n]
    ]
    faults += [f"missing from the wheel: {n}" for n in sorted(expected() - first.keys())]
    print("\n".join(faults) or f"{direct.name}: {len(first)} files, the same through an sdist")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
