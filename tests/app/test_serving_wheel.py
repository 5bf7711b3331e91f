"""The wheel to serve with: what it holds, and that it runs where there is nothing but torch."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import types
import zipfile

import pytest

from mla_var3.app import serving_wheel
from mla_var3.errors import UsageError


@pytest.fixture
def wheel(monkeypatch, tmp_path):
    """A wheel whose kernels were not compiled."""

    def compiled(kind, arch, folder):
        folder.mkdir()
        (folder / "manifest.json").write_text(f'{{"kind": "{kind.key}", "arch": "{arch}"}}\n')

    fake = types.SimpleNamespace(compiled=compiled)
    monkeypatch.setattr(serving_wheel.importlib, "import_module", lambda _: fake)
    assert serving_wheel.main(["--serve", "--only=share1", f"--to={tmp_path}"]) == 0
    (found,) = tmp_path.glob("*.whl")
    return found


def test_it_holds_the_calls_and_the_chosen_kernels(wheel):
    with zipfile.ZipFile(wheel) as archive:
        assert archive.testzip() is None
        names = archive.namelist()
        assert {one.compress_type for one in archive.infolist()} == {zipfile.ZIP_DEFLATED}
    assert "mla_var3/serving/flashmla.py" in names
    assert "mla_var3/loader.py" in names
    kernels = [name for name in names if "compiled/sm_90a" in name]
    assert "mla_var3/serving/compiled/sm_90a/attention-bfloat16-share1-box64/manifest.json" in names
    assert all("share1" in name for name in kernels)


def test_servers_find_their_entry_points(wheel, monkeypatch):
    monkeypatch.syspath_prepend(str(wheel))
    found = importlib.metadata.Distribution.discover(path=[str(wheel)])
    points = {point.group: point for one in found for point in one.entry_points}
    for group in ("vllm.general_plugins", "sglang.srt.plugins"):
        assert points[group].name == "mla_var3"
        assert callable(points[group].load())


IMPORT = """
import importlib.abc, sys, time
class Refused(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in ("cutlass", "pydantic", "tyro", "rich", "cuda"):
            raise ImportError(name)
sys.meta_path.insert(0, Refused())
import torch
started = time.monotonic()
from mla_var3.serving import flashinfer, flashmla
assert ".whl" in flashmla.__file__, flashmla.__file__
print(len(flashmla.__all__), "mla_var3.records" in sys.modules)
"""


def test_it_needs_nothing_but_torch(wheel):
    done = subprocess.run(
        [sys.executable, "-c", IMPORT],
        env={"PYTHONPATH": str(wheel)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["4", "False"]


def test_a_kernel_that_is_none_is_refused(tmp_path):
    with pytest.raises(UsageError, match="--only=nothing: no kernel is called so"):
        serving_wheel.main(["--serve", "--only=nothing", f"--to={tmp_path}"])
