"""The ways to divide by a number of the launch give what the page says they are compiled to."""

from __future__ import annotations

import re
import subprocess

import pytest

from mla_var3.emulator import Options
from mla_var3.emulator.script import run_script
from mla_var3.paths import repo_root
from mla_var3.static import tools

PAGE = repo_root() / "docs/cute-dsl.md"


def section() -> str:
    text = PAGE.read_text("utf-8")
    return text[text.index("{ #divide-a-work-index }") : text.index("{ #see-ptx-and-sass }")]


def test_a_work_index_is_taken_apart_by_prepared_divisors(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("cutlass", reason="the CuTe DSL is not installed")
    script = repo_root() / "examples/cute/divide.py"
    done = run_script(script, (), Options(), "sm_90a")
    assert (done.ended.error, done.diagnostics) == (None, [])
    assert "right: True" in capsys.readouterr().out
    shown = section().partition("``` { .python }\n")[2].partition("```")[0]
    assert all(line.strip() in script.read_text("utf-8") for line in shown.splitlines())


@pytest.mark.slow
def test_the_table_says_what_each_way_is_compiled_to(tmp_path, monkeypatch) -> None:
    pytest.importorskip("cutlass", reason="the CuTe DSL is not installed")
    monkeypatch.setenv("CUTE_DSL_ARCH", "sm_90a")
    from tests.examples import dividing

    nvdisasm = tools.disassembler("nvdisasm")
    rows = re.findall(r"^\| `[^|]+ \| (`[^|]+`) \| (\d+) \|", section(), re.MULTILINE)
    assert len(rows) == len(dividing.WAYS)
    for (instructions, count), (name, ways) in zip(rows, dividing.WAYS.items(), strict=True):
        ptx, cubin = dividing.compiled(*ways)
        found = re.findall(r"^\s+(div|rem|mul\.hi|shr)\.\w+", ptx, re.MULTILINE)
        assert found == re.findall(r"(div|rem|mul\.hi|shr)\.\w+", instructions), name
        (tmp_path / "x.cubin").write_bytes(cubin)
        listing = subprocess.run(
            [nvdisasm.path, "--print-code", tmp_path / "x.cubin"],
            capture_output=True, text=True, check=True, env=tools.environment(),
        ).stdout  # fmt: skip
        opcodes = re.findall(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+ )?([A-Z][A-Z0-9.]+)", listing)
        # Within a long run of tests one was compiled to one instruction more.
        assert abs(len([opcode for opcode in opcodes if opcode != "NOP"]) - int(count)) <= 1, name


def test_a_kernel_gets_the_name_that_the_page_says(monkeypatch) -> None:
    pytest.importorskip("cutlass", reason="the CuTe DSL is not installed")
    monkeypatch.setenv("CUTE_DSL_ARCH", "sm_90a")
    from tests.examples import dividing

    page = (repo_root() / "docs/glossary/nsight-systems.md").read_text("utf-8")
    call = 'set_name_prefix("decode", remove_cutlass_symbol=True, keep_mangled_name=False)'
    assert f"`double.{call}` gives `decode_0`" in page
    named = dividing.constant
    try:
        named.set_name_prefix("decode", remove_cutlass_symbol=True, keep_mangled_name=False)
        ptx, _ = dividing.compiled(*dividing.WAYS["a constant"])
        assert re.findall(r"\.entry (\w+)\(", ptx) == ["decode_0"]
        named.set_name_prefix("decode")
        ptx, _ = dividing.compiled(*dividing.WAYS["a constant"])
        assert ".entry decode_kernel_cutlass_constant_" in ptx
    finally:
        named.set_name_prefix("")
