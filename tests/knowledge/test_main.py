from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mla_var3 import front
from mla_var3.errors import KnowledgeError
from mla_var3.knowledge import pages, reference
from mla_var3.knowledge.__main__ import main

from .trees import ANTI, BEFORE, DESIGNS, PAGE, is_stale


@pytest.fixture
def here(tree, monkeypatch):
    monkeypatch.setenv("HYPERMLA_ROOT", str(tree.root))
    monkeypatch.setattr(pages, "registered_designs", lambda: DESIGNS)
    monkeypatch.setattr(pages.load_all, "__kwdefaults__",
                        {**pages.load_all.__kwdefaults__, "is_stale": is_stale})  # fmt: skip
    monkeypatch.chdir(tree.root)
    # Lint renders texts as the site does.
    shutil.copy(Path(__file__).parents[2] / "mkdocs.yml", tree.root)
    return tree


def test_lint_of_a_clean_tree(here, capsys):
    assert main(["lint"]) == 0
    assert capsys.readouterr().out == "2 patterns, 1 texts, 1 devlogs: 0 errors, 0 warnings\n"


def test_lint_with_findings(here, capsys):
    here.replace(PAGE, "None known.", "12 us")
    assert main(["lint"]) == 1
    out = capsys.readouterr().out
    assert f"{PAGE}:{here.line(PAGE, '12 us')}: error: " in out
    assert "[number-without-source]" in out
    assert "1 errors, 0 warnings" in out
    assert main(["lint", ANTI]) == 0
    assert main(["lint", PAGE, "--json"]) == 1
    (finding,) = json.loads(capsys.readouterr().out.split("warnings\n")[-1])
    assert finding["check"] == "number-without-source"


def test_warnings_do_not_fail_lint(here, capsys):
    from .trees import make_record

    here.record(make_record("v1", sources={"x": "b" * 40}))
    assert main(["lint"]) == 0
    assert "warning: " in capsys.readouterr().out


def test_query(here, capsys):
    assert main(["query", "group", "heads"]) == 0
    assert "Group heads [optimization, shared]" in capsys.readouterr().out
    assert main(["query", "zebra"]) == 0
    assert "no pattern holds" in capsys.readouterr().out


def test_match(here, capsys):
    assert main(["match", BEFORE]) == 0
    out = capsys.readouterr().out
    assert "Group heads, listed as violating it" in out
    assert "spill_instructions = 3 instructions in stage main (spill_instructions > 0)" in out
    assert "recipe: My kernel spills registers: diagnosis/register-spills/#sm_90 of the site" in out
    here.replace(PAGE, "archs: [sm_90]", "archs: [sm_100]")
    here.replace(ANTI, "archs: [sm_90, sm_100]", "archs: [sm_100]")
    assert main(["match", BEFORE]) == 0
    assert "no trigger fires" in capsys.readouterr().out


def test_reference(here, capsys):
    with pytest.raises(KnowledgeError, match=r"cannot read docs/contributing/knowledge\.md"):
        main(["reference"])
    for page, parts in reference.PAGES.items():
        marks = "".join(f"[//]: # (begin {p})\n[//]: # (end {p})\n" for p in parts)
        here.write(f"{reference.FOLDER}/{page}", marks)
    assert main(["reference", "--check"]) == 1
    assert "out of date" in capsys.readouterr().out
    assert main(["reference"]) == 0
    assert main(["reference", "--check"]) == 0
    assert "fresh" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        ["match", "gone.json"],
        ["match", PAGE],
        ["lint", "gone"],
        ["query", "the"],
        ["query", "x", "--top", "0"],
        ["match", BEFORE, "--top=-1"],
        ["match"],
        ["query"],
        ["nothing"],
        ["lint", "--top"],
        [],
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(here, capsys, arguments):
    with pytest.raises(SystemExit) as end:
        front.run("mla_var3.knowledge.__main__:main", argv=arguments)
    assert end.value.code == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert err.count("\n") == 1


def test_the_module_can_be_run():
    done = subprocess.run(
        [sys.executable, "-m", "mla_var3.knowledge", "query", "register", "spills", "--top", "1"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "knowledge/" in done.stdout
