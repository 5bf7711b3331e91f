from __future__ import annotations

from pathlib import Path

import pytest

from mla_var3.examples import pin
from tests.repository import git

#: Examples of our own, in the shape of CUTLASS's: a script, a helper, one that fails.
SCALE = """
import argparse
import cutlass
import cutlass.cute as cute
import cutlass.utils as utils
import torch
import cuda.bindings.driver as cuda
from cutlass.cute.runtime import from_dlpack
from neighbour import THREADS

class Scale:
    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor, stream: cuda.CUstream):
        self.kernel(x, y).launch(grid=(1, 1, 1), block=(THREADS, 1, 1), stream=stream)

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor):
        i = cute.arch.thread_idx()[0]
        if cute.elem_less(i, cute.size(x)):
            y[i] = x[i] * cutlass.Float32(2.0)

def run(n):
    assert torch.cuda.is_available()
    assert utils.HardwareInfo().get_max_active_clusters(2) > 0
    x = torch.randn(n, n, device="cuda", dtype=torch.float32).reshape(-1)
    y = torch.empty_like(x)
    sizes = torch.tensor([1, 2, 3], device="cuda")
    assert sizes.sum().item() == 6
    stream = cuda.CUstream(torch.cuda.current_stream().cuda_stream)
    scale = cute.compile(Scale(), from_dlpack(x, assumed_align=16), from_dlpack(y), stream)
    scale(from_dlpack(x), from_dlpack(y), stream)
    raise SystemExit("a launch ends the run, so this is never reached")

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=8192)
    run(parser.parse_args().n)
"""
MAIN = 'if __name__ == "__main__":\n'
FILES = {
    "cute/ampere/kernel/scale/scale.py": SCALE,
    "cute/ampere/kernel/scale/neighbour.py": "THREADS = 64\n",
    "cute/hopper/kernel/broken/broken.py": f"{MAIN}    import no_such_module\n",
    "experimental/primitives/quiet.py": f"{MAIN}    pass\n",
}


@pytest.fixture
def upstream(tmp_path: Path) -> tuple[Path, str]:
    """A repository with a few examples, and its commit."""
    folder = tmp_path / "upstream"
    for path, text in {f"{pin.EXAMPLES}/{k}": v for k, v in FILES.items()}.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (folder / "media/docs").mkdir(parents=True)
    (folder / "media/docs/page.md").write_text("words\n")
    (folder / "other.txt").write_text("not wanted\n")
    git(tmp_path, "init", "--quiet", str(folder))
    git(folder, "add", "-A")
    git(folder, "commit", "--quiet", "-m", "all")
    return folder, git(folder, "rev-parse", "HEAD")


def write_pin(root: Path, commit: str, tag: str = "v1.2.3") -> None:
    file = root / pin.PIN
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(
        f'address = "https://example.org/cutlass"\ntag = "{tag}"\ncommit = "{commit}"\n'
        f'license = "none"\nfolders = ["{pin.EXAMPLES}", "media/docs"]\n'
    )


@pytest.fixture
def root(tmp_path: Path, upstream: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout whose pin is the repository's commit; nothing is fetched yet."""
    checkout = tmp_path / "checkout"
    write_pin(checkout, upstream[1])
    monkeypatch.setenv("HYPERMLA_ROOT", str(checkout))
    monkeypatch.setenv("CUTLASS_DIR", str(upstream[0]))
    return checkout


@pytest.fixture
def tree(root: Path) -> pin.Tree:
    from mla_var3.examples.fetch import fetch

    return fetch(root)
