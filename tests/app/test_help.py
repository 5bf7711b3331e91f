"""What a command's help may load: people wait for it, and torch alone takes seconds."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

#: Command lines whose help must load neither torch nor a language's compiler.
LIGHT = (
    "mla_var3.kernel --help",
    "mla_var3.app.commands --help",
    "mla_var3.app.commands check --help",
    "mla_var3.app.commands compare --help",
    "mla_var3.app.commands bench --help",
    "mla_var3.app.commands bench --workload=gemm --help",
    "mla_var3.app.records --help",
    "mla_var3.app.records verify --help",
    "mla_var3.app.records list --help",
    "mla_var3.app.adopt --help",
    "mla_var3.app.campaign --help",
    "mla_var3.app.campaign init --help",
    "mla_var3.app.sweep --help",
    "mla_var3.app.contribute --help",
    "mla_var3.app.tools asm --help",
    "mla_var3.app.clone --help",
    "mla_var3.app.flatten --help",
    "mla_var3.devices --help",
)
#: Those that read the flags of a kernel, and so load its language.
WITH_KERNEL = (
    "mla_var3.kernel flash_mla v1 --help",
    "mla_var3.kernel torch_sdpa --help",
    "mla_var3.kernel.cutile.mla.mla_var6_plus v4 --help",
)

BODY = """
import contextlib, io, json, runpy, sys
found = {}
for line in json.loads(sys.argv[1]):
    module, *sys.argv[1:] = line.split()
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        try:
            runpy.run_module(module, run_name="__main__")
        except SystemExit as stop:
            code = stop.code
    found[line] = (code, bool(said.getvalue()), sorted(
        name for name in ("torch", "cuda.tile", "cutlass", "pandas") if name in sys.modules
    ))
print(json.dumps(found))
"""


@pytest.mark.parametrize(("lines", "allowed"), [(LIGHT, []), (WITH_KERNEL, ["cuda.tile"])])
def test_help_loads_neither_torch_nor_more_than_it_needs(lines, allowed):
    done = subprocess.run(
        [sys.executable, "-c", BODY, json.dumps(lines)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for line in lines:
        code, spoke, loaded = found[line]
        assert (line, code, spoke) == (line, 0, True)
        assert set(loaded) <= set(allowed), (line, loaded)
