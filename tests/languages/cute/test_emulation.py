"""What a kernel's run on a CPU says of its sources."""

from __future__ import annotations

from mla_var3.gpuless.ptx import parse
from mla_var3.languages.cute import emulation
from mla_var3.paths import kernels_dir

PTX = """
.version 8.7
.target sm_90a
.address_size 64
.visible .entry touch()
{
    .loc 1 12 0
    ret;
}
"""


def files(path: str) -> dict[int, str]:
    module = parse(emulation._named_here(f'{PTX}\n\t.file\t1 "{path}"\n'))
    return module.kernels["touch"].files


def test_a_source_is_named_as_it_lies_here_whoever_compiled_it() -> None:
    here = str(kernels_dir() / "cute_python" / "kit" / "head_loads.py")
    for checkout in ("/home/some/kernels/x", "/tmp/it's here", "/work"):
        for package in ("src/mla_var3/kernel", "kernels"):
            assert files(f"{checkout}/{package}/cute_python/kit/head_loads.py") == {1: here}


def test_sources_of_others_keep_their_names() -> None:
    for path in ("/elsewhere/kernels/cute_python/kit/absent.py", "/lib/cutlass/pipeline.py"):
        assert files(path) == {1: path}
