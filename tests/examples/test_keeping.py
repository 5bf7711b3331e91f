"""The examples that leave PTX, Tile IR and machine code do, and so do the variables named."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from mla_var3.emulator import STRICT, Options
from mla_var3.emulator.script import run_script
from mla_var3.paths import repo_root

FIRST = repo_root() / "examples" / "first"
PAGE = repo_root() / "docs" / "cute-dsl.md"


def left(script: Path, folder: Path, argument: Path, **variables: str) -> set[str]:
    """The kinds of files that a script leaves in a folder."""
    subprocess.run(
        [sys.executable, script, argument], capture_output=True, text=True, cwd=folder.parent,
        env=os.environ | variables, check=True,
    )  # fmt: skip
    return {file.suffix for file in folder.glob("*")}


def test_options_of_a_compile_leave_ptx_and_cubin(tmp_path: Path) -> None:
    pytest.importorskip("cutlass", reason="the CuTe DSL is not installed")
    folder = tmp_path / "code"
    assert left(FIRST / "keep_code.py", folder, folder) == {".ptx", ".cubin"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variables", "kinds"),
    [
        ({"CUTE_DSL_KEEP": "ptx,cubin,sass"}, {".ptx", ".cubin", ".sass"}),
        ({"CUTE_DSL_KEEP_PTX": "1"}, {".ptx"}),
    ],
)
def test_variables_leave_them_without_options(
    variables: dict[str, str], kinds: set[str], tmp_path: Path
) -> None:
    pytest.importorskip("cutlass", reason="the CuTe DSL is not installed")
    plain = tmp_path / "plain.py"
    plain.write_text((FIRST / "keep_code.py").read_text().replace(", options=keep)", ")"))
    where = {"CUTE_DSL_DUMP_DIR": str(tmp_path / "kept"), "CUTE_DSL_ARCH": "sm_90a"}
    if ".sass" not in kinds:  # Without its folder nothing is written, and nothing said.
        assert left(plain, tmp_path / "kept", tmp_path / "x", **where, **variables) == set()
    (tmp_path / "kept").mkdir()
    assert left(plain, tmp_path / "kept", tmp_path / "x", **where, **variables) == kinds
    assert all(name in PAGE.read_text("utf-8") for name in [*where, *variables])


@pytest.mark.slow
def test_cutile_leaves_tile_ir_and_cubin(tmp_path: Path) -> None:
    script = FIRST / "keep_code_cutile.py"
    assert left(script, tmp_path / "a", tmp_path / "a") == {".tileirbc", ".cubin"}
    for name, kind in (
        ("CUDA_TILE_DUMP_BYTECODE", ".tileirbc"),
        ("CUDA_TILE_DUMP_TILEIR", ".tileir"),
    ):
        folder = tmp_path / name
        assert left(script, folder, tmp_path / "b", **{name: str(folder)}) == {kind}
        assert name in PAGE.read_text("utf-8")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("word", "shown"), [("CUTILEIR", "==== CuTile IR for double"), ("TILEIR", "==== TILEIR ====")]
)
def test_cutile_logs_its_ir_and_makes_the_folder_of_a_dump(
    word: str, shown: str, tmp_path: Path
) -> None:
    variables = {"CUDA_TILE_LOGS": word, "CUDA_TILE_DUMP_TILEIR": str(tmp_path / "new")}
    told = subprocess.run(
        [sys.executable, FIRST / "keep_code_cutile.py", tmp_path / "code"], capture_output=True,
        text=True, env=os.environ | variables, check=True,
    ).stderr  # fmt: skip
    assert shown in told
    (first, *_) = sorted((tmp_path / "new").glob("double.keep_code_cutile.ln13.*.tileir"))
    assert f"Dumping TILEIR MLIR text to file: {first}" in told
    page = (repo_root() / "docs/interpreter.md").read_text("utf-8")
    assert f"CUDA_TILE_LOGS={word}" in page


@pytest.mark.parametrize("options", [Options(), Options(model=STRICT, seed=1)], ids=["", "strict"])
def test_one_tile_serves_as_keys_and_as_values(
    options: Options, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("cutlass", reason="the CuTe DSL is not installed")
    done = run_script(repo_root() / "examples/cute/k_as_v.py", (), options, "sm_90a")
    assert (done.ended.error, done.diagnostics) == (None, [])
    assert "right: True" in capsys.readouterr().out


def test_instructions_without_a_wrapper_are_executed(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("cutlass", reason="the CuTe DSL is not installed")
    script = repo_root() / "examples/cute/inline_ptx.py"
    done = run_script(script, (), Options(), "sm_90a")
    assert (done.ended.error, done.diagnostics) == (None, [])
    assert "right: True" in capsys.readouterr().out
    text, code = PAGE.read_text("utf-8"), script.read_text("utf-8")
    section = text[text.index("{ #without-a-wrapper }") : text.index("{ #see-ptx-and-sass }")]
    for said in ('"lop3.b32 {$w0}, {$r0}, {$r1}, 0, 0x3c;"', "predicate=thread < 16"):
        assert said in section
        assert said in code


def test_the_scripts_beside_the_calls_of_the_table_have_them() -> None:
    text = PAGE.read_text("utf-8")
    table = text[text.index("{ #how-do-i-write }") : text.index("{ #see-ptx-and-sass }")]
    rows = [row for row in table.splitlines() if row.startswith("| ") and ".py)" in row]
    assert len(rows) > 15
    for row in rows:
        calls, whole = row.split(" | ")[1:3]
        files = re.findall(r"\]\(\.\./([^)]+\.py)\)", whole)
        code = "\n".join((repo_root() / file).read_text("utf-8") for file in files)
        for call in re.findall(r"`([^`]+)`", calls):
            assert re.match(r"[\w.]+", call)[0].removeprefix("cute.arch.") in code, call


def test_a_kernel_as_an_operator_of_torch_runs_and_has_a_fake() -> None:
    pytest.importorskip("cutlass", reason="the CuTe DSL is not installed")
    done = run_script(repo_root() / "examples/first/custom_operator.py", (), Options(), "sm_90a")
    assert (done.ended.error, done.diagnostics) == (None, [])


@pytest.mark.parametrize(
    ("script", "arch", "page", "lines"),
    [
        ("first/tvm_ffi.py", "sm_90a", "docs/calling.md",
         ["options=\"--enable-tvm-ffi\")", "fn(x, out)", "enable_tvm_ffi=True"]),
        ("first/fake_then_real.py", "sm_90a", "docs/calling.md",
         ["ffi(x, out, stream)", "mark_compact_shape_dynamic(mode=0, stride_order=(0, 1))",
          "x = make_fake_tensor(cutlass.Float32, (rows, WIDTH), stride=(step, 1), assumed_align",
          "out = make_fake_tensor(cutlass.Float32, (rows, WIDTH), stride=(WIDTH, 1), assumed_"]),
        ("cute/reuse.py", "sm_90a", "docs/glossary/shared-memory.md",
         ["place = cute.recast_ptr(s_q.iterator, dtype=cutlass.Float32)",
          "warpgroup.wait_group(0)  # my warpgroup's products have read Q",
          "cute.autovec_copy(acc, mine.partition_C(s_out))", "# threads wrote, TMA reads",
          "s_out = cute.make_tensor(place, cute.make_layout(TILE[0], stride=TILE[1]))"]),
        ("cute/promoted.py", "sm_90a", "docs/glossary/fp8.md",
         ["mma.set(warpgroup.Field.ACCUMULATE, step > 0)", "at = block * (INTERVAL // 32) + step",
          "total.store(total.load() + part.load())"]),
        ("api/cute/values.py", "sm_90a", "docs/cute-dsl.md",
         ["half.store(kept.to(cutlass.BFloat16))", "byte.store(kept.to(cutlass.Float8E4M3FN))",
          "element_type = cutlass.Float8E4M3FN", "v.reduce(cute.ReductionOp.MAX",
          "kept.reduce(cute.ReductionOp.ADD, 0.0, 0)", "cute.where(v > 0.0, weights"]),
        ("cute/packed.py", "sm_100a", "knowledge/references/cute/numbers.toml",
         ["cute.arch.fma_packed_f32x2("]),
    ],
)  # fmt: skip
def test_what_a_page_quotes_of_a_script_stands_there_and_runs(
    script: str, arch: str, page: str, lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("cutlass", reason="the CuTe DSL is not installed")
    done = run_script(repo_root() / "examples" / script, (), Options(), arch)
    assert (done.ended.error, done.diagnostics) == (None, [])
    capsys.readouterr()
    for text in ((repo_root() / name).read_text("utf-8") for name in (page, f"examples/{script}")):
        assert [line for line in lines if line not in text] == []


def test_errors_by_length_are_those_of_the_page() -> None:
    scope = runpy.run_path(str(FIRST / "error_by_length.py"))
    page = (repo_root() / "docs/messages/wrong-numbers.md").read_text("utf-8")
    for name, types in scope["KEPT"].items():
        row = re.search(rf"^\| {name} \| (.+) \|$", page, re.M)
        assert row, name
        stated = [float(x) for x in row[1].split(" | ")]
        for keys, error in list(zip(scope["LENGTHS"], stated, strict=True))[:2]:
            assert scope["error"](keys, *types) == pytest.approx(error, rel=0.2)
