"""Short scripts that glossary pages show run without a GPU and say what the pages say."""

from __future__ import annotations

import importlib.util
import runpy

import pytest

from mla_var3.interpreter.redirect import redirected
from mla_var3.paths import repo_root

HAS_CUTE = importlib.util.find_spec("cutlass") is not None


@pytest.mark.skipif(not HAS_CUTE, reason="needs the CuTe DSL (the cute extra), not installed")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("cute/who_holds", "(9, 37): thread 6, register 19"),
        ("first/helpers_cute", "causal True: right True"),
        ("first/compile_threads", "right: True compiled: 2"),
        ("cute_sync/descriptor", "right: True"),
        ("cute_sync/paged_tile", "right: True"),
    ],
)
def test_a_script_in_the_cute_dsl(name, said, capsys):
    from mla_var3.emulator import Options
    from mla_var3.emulator.script import run_script

    done = run_script(repo_root() / f"examples/{name}.py", (), Options(), "sm_90a")
    assert (done.ended.error, done.diagnostics) == (None, [])
    assert said in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "launches", "said"),
    [
        ("helpers_cutile", 2, "causal True: right True"),
        ("list_of_pages", 1, "right: True"),
        ("fp8_bytes", 1, "right: True"),
    ],
)
def test_a_script_in_cutile(name, launches, said, capsys):
    file = repo_root() / f"examples/first/{name}.py"
    with redirected() as reports:
        runpy.run_path(str(file), run_name="__main__")
    assert [report.diagnostics for report in reports] == [[]] * launches
    assert said in capsys.readouterr().out


@pytest.mark.parametrize(("page", "name"), [("glossary/tma", "cute_sync/paged_tile")])
def test_a_page_shows_lines_of_its_script(page, name):
    text = (repo_root() / f"examples/{name}.py").read_text(encoding="utf-8")
    parts = (repo_root() / f"docs/{page}.md").read_text(encoding="utf-8").split("``` { .python }\n")
    assert len(parts) > 1
    assert all(part.partition("```")[0] in text for part in parts[1:])
