"""Short scripts that glossary pages show run without a GPU and say what the pages say."""

from __future__ import annotations

import importlib.util
import re
import runpy
import subprocess
import sys

import pytest

from mla_var3.interpreter.redirect import redirected
from mla_var3.paths import repo_root

HAS_CUTE = importlib.util.find_spec("cutlass") is not None


@pytest.mark.slow
@pytest.mark.skipif(not HAS_CUTE, reason="needs the CuTe DSL (the cute extra), not installed")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("cute/who_holds", "(9, 37): thread 6, register 19"),
        ("first/helpers_cute", "causal True: right True"),
        ("first/compile_threads", "right: True compiled: 2"),
        ("cute_sync/descriptor", "right: True"),
        ("cute_sync/paged_tile", "right: True"),
        ("cute/decode", "right: True"),
        ("cute/tma_wgmma", "right: True"),
    ],
)
def test_a_script_in_the_cute_dsl(name, said, capsys):
    from mla_var3.emulator import Options
    from mla_var3.emulator.script import run_script

    done = run_script(repo_root() / f"examples/{name}.py", (), Options(), "sm_90a")
    assert (done.ended.error, done.diagnostics) == (None, [])
    assert said in capsys.readouterr().out


@pytest.mark.skipif(not HAS_CUTE, reason="needs the CuTe DSL (the cute extra), not installed")
@pytest.mark.parametrize("script", ["tcgen05", "pipelines"])
@pytest.mark.parametrize("model", ["default", "strict"])
def test_the_tile_of_tcgen05(model, script, capsys):
    """Right and clean, also where fences of the PTX ISA are asked for."""
    from mla_var3.emulator import STRICT, Options
    from mla_var3.emulator.script import run_script

    options = Options(model=STRICT) if model == "strict" else Options()
    done = run_script(repo_root() / f"examples/blackwell/{script}.py", (), options, "sm_100a")
    assert (done.ended.error, done.diagnostics) == (None, [])
    assert capsys.readouterr().out == "right: True\n"


@pytest.mark.skipif(not HAS_CUTE, reason="needs the CuTe DSL (the cute extra), not installed")
def test_the_tile_of_tcgen05_without_its_wait_says_what_the_lesson_says(tmp_path):
    from mla_var3.emulator import Options
    from mla_var3.emulator.script import run_script

    text = (repo_root() / "examples/blackwell/tcgen05.py").read_text(encoding="utf-8")
    line = "    cute.arch.mbarrier_wait(done, 0)  # Phase 0: the barrier's first use.\n"
    assert text.count(line) == 1
    (tmp_path / "broken.py").write_text(text.replace(line, ""), encoding="utf-8")
    found = run_script(tmp_path / "broken.py", (), Options(), "sm_100a").diagnostics
    said = "tcgen05.commit to an mbarrier, and a wait on it"
    assert said in "\n".join(str(each) for each in found)
    assert said in (repo_root() / "docs/learn/tensor-memory.md").read_text(encoding="utf-8")


@pytest.mark.skipif(not HAS_CUTE, reason="needs the CuTe DSL (the cute extra), not installed")
@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        ("mbarrier_wait(full, step & 1)", "mbarrier_wait(full, 0)", "deadlock"),
        ("warpgroup.fence()", "pass", "missing-wgmma-fence"),
        ("warpgroup.wait_group(0)", "pass", "race"),
        ("2 * 64 * 64 * 2", "64 * 64 * 2", "race"),
        ("(tile_layout(), (TILE, TILE))", "(narrow, (TILE, TILE))", None),
    ],
)
def test_the_first_hopper_kernel_breaks_as_its_page_says(before, after, named, tmp_path, capsys):
    """Each mistake is named, but for two swizzles that disagree: those give wrong numbers."""
    from mla_var3.emulator import Options
    from mla_var3.emulator.script import run_script

    text = (repo_root() / "examples/cute/tma_wgmma.py").read_text(encoding="utf-8")
    assert text.count(before) == 1
    text = text.replace(before, after).replace(
        "    kind, box =",
        "    sw64 = warpgroup.SmemLayoutAtomKind.K_SW64\n"
        "    atom = warpgroup.make_smem_layout_atom(sw64, cutlass.Float16)\n"
        "    narrow = cute.tile_to_shape(atom, (TILE, TILE), order=(0, 1))\n"
        "    kind, box =",
    )
    (tmp_path / "broken.py").write_text(text, encoding="utf-8")
    found = run_script(tmp_path / "broken.py", (), Options(), "sm_90a").diagnostics
    if named is None:
        assert (found, capsys.readouterr().out) == ([], "right: False\n")
    else:
        assert named in "\n".join(str(each) for each in found)


@pytest.mark.slow
@pytest.mark.skipif(not HAS_CUTE, reason="needs the CuTe DSL (the cute extra), not installed")
@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("api/cute/mma.py", "on sm_120: "),
        *((f"hopper/{name}.py", "on sm_120: ")
          for name in ("tma", "swizzle", "specialize", "cluster", "persistent")),
        ("hopper/wgmma.py", "which needs sm_90 and not sm_120"),
        ("blackwell/tcgen05.py", "which needs sm_100 or sm_103 or sm_110 and not sm_120"),
    ],
)  # fmt: skip
def test_what_the_path_of_an_rtx_5090_says_of_its_scripts(file, said):
    """Each by itself: the DSL keeps the arch that it was first asked for."""
    command = [sys.executable, "-m", "mla_var3.app.run", "--arch=sm_120", f"examples/{file}"]
    done = subprocess.run(command, cwd=repo_root(), capture_output=True, text=True, check=False)
    assert said in done.stdout + done.stderr
    assert (done.returncode == 0) == (said == "on sm_120: ")


@pytest.mark.parametrize(
    ("name", "launches", "said"),
    [
        ("helpers_cutile", 2, "causal True: right True"),
        ("list_of_pages", 1, "right: True"),
        ("fp8_bytes", 1, "right: True"),
        ("paged_mla", 2, "right: True"),
    ],
)
def test_a_script_in_cutile(name, launches, said, capsys):
    file = repo_root() / f"examples/first/{name}.py"
    with redirected() as reports:
        runpy.run_path(str(file), run_name="__main__")
    assert [report.diagnostics for report in reports] == [[]] * launches
    assert said in capsys.readouterr().out


def test_mla_in_torch_says_what_its_page_says(capsys):
    runpy.run_path(str(repo_root() / "examples/first/mla_in_torch.py"), run_name="__main__")
    page = (repo_root() / "docs/learn/attention-and-mla.md").read_text(encoding="utf-8")
    said = capsys.readouterr().out.splitlines()
    assert [line for line in said if f"`{line}`" not in page] == []


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("glossary/tma", ["cute_sync/paged_tile"]),
        ("learn/ampere-to-hopper", ["cute/decode", "cute/tma_wgmma"]),
        ("learn/cutile-to-machine-code", ["lessons/lesson5"]),
        ("learn/cutile-mla", ["first/paged_mla"]),
        ("learn/attention-and-mla", ["first/mla_in_torch"]),
    ],
)
def test_a_page_shows_lines_of_its_scripts(page, names):
    files = [repo_root() / f"examples/{name}.py" for name in names]
    text = "\n".join(file.read_text(encoding="utf-8") for file in files)
    told = (repo_root() / f"docs/{page}.md").read_text(encoding="utf-8")
    fences = re.findall(r"^( *)``` \{ \.python \}\n(.*?)^\1```", told, re.MULTILINE | re.DOTALL)
    assert fences
    for indent, fence in fences:
        lines = re.sub(f"^{indent}", "", fence, flags=re.MULTILINE)
        assert all(part in text for part in lines.split("\n\n"))


@pytest.mark.slow
@pytest.mark.skipif(not HAS_CUTE, reason="needs the CuTe DSL (the cute extra), not installed")
@pytest.mark.parametrize("roles", [True, False])
def test_the_first_decode_kernel_needs_registers_of_its_producers(roles, tmp_path, capsys):
    from mla_var3.app import run

    text = (repo_root() / "examples/cute/decode.py").read_text(encoding="utf-8")
    if not roles:
        text, changed = re.subn(r"cute\.arch\.setmaxregister_.+?\(\d+\)", "pass", text)
        assert changed == 2
        block = "128 * (SIDES + 1)"
        assert block in text
        text = text.replace(block, "128 * SIDES + 32").replace(", min_blocks_per_mp=1", "")
    (tmp_path / "decode.py").write_text(text, encoding="utf-8")
    assert run.main(["--arch=sm_90", str(tmp_path / "decode.py")]) == 0
    (line,) = re.findall("^decode on sm_90: .+", capsys.readouterr().out, re.MULTILINE)
    assert "168 registers" in line
    assert (", no spills" in line, "serialized" not in line) == (roles, roles)
