"""All examples adopted without a recipe: how far each comes, and why no further."""

from __future__ import annotations

import json

import pytest

from mla_var3.app import adopt, adopting_examples
from mla_var3.app.adopting_examples import Case, Table
from mla_var3.errors import UsageError
from mla_var3.gpuless.suites import Script
from tests.campaign.files import DEMO

#: Compares its result by itself.
COMPARES = (
    DEMO
    + """
torch.testing.assert_close(add(x, y), x + y)
"""
)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "compares.py").write_text(COMPARES)
    (tmp_path / "nothing.py").write_text("import cuda.tile\n")
    (tmp_path / "raises.py").write_text("import cuda.tile\nraise ValueError('no')\n")
    return tmp_path


def script(name: str) -> Script:
    return Script(path=f"{name}.py", arch="sm_90", arguments="")


@pytest.mark.slow
def test_an_example_that_compares_by_itself_is_checked_and_compiled(folder):
    found = Case.model_validate(adopting_examples.one(script("compares"), folder))
    assert (found.reached, found.reason) == ("compiled", "")
    assert found.kernels == ["add_kernel"]
    assert found.error == 0.0
    assert len(found.blob) == 40


@pytest.mark.parametrize(
    ("name", "said"),
    [("nothing", "it calls no function with tensors"), ("raises", "ends with ValueError: no")],
)
def test_another_one_says_why_not(folder, name, said):
    found = Case.model_validate(adopting_examples.one(script(name), folder))
    assert found.reached is None
    assert said in found.reason
    assert "\n" not in found.reason


def test_each_has_a_process_of_its_own_and_a_limit(folder, monkeypatch):
    def slow(run, place):
        import time

        time.sleep(0.0 if run.path == "nothing.py" else 60.0)
        return {"id": "x", "path": run.path, "arguments": "", "arch": run.arch, "reason": "why"}

    monkeypatch.setattr(adopting_examples, "one", slow)
    asked = [script("nothing"), script("raises")]
    found = {run.path: case for run, case in adopting_examples.adopt_all(asked, folder, 1.0)}
    assert found["nothing.py"].reason == "why"
    assert found["raises.py"].reason == "took longer than 1 s"


def test_the_table_grows_by_what_was_asked(folder, monkeypatch, tmp_path, capsys):
    path = tmp_path / "table.json"
    monkeypatch.setattr(adopting_examples, "path_of", lambda: path)
    monkeypatch.setattr(adopting_examples.suites, "sources", lambda suite, place: folder)
    for name in ("nothing", "raises"):
        monkeypatch.setattr(adopting_examples, "runs", lambda text, name=name: [script(name)])
        assert adopt.main([f"--examples={name}"]) == 0
    table = Table.model_validate(json.loads(path.read_text()))
    assert [case.path for case in table.cases] == ["nothing.py", "raises.py"]
    assert table.adopted == 0
    assert "0 of 2 examples are adopted, checked and compiled" in capsys.readouterr().out


def test_bad_flags_are_one_sentence():
    with pytest.raises(UsageError, match="no example has 'zzz' in its path"):
        adopt.main(["--examples=zzz"])
    for limit in ("0", "x", "inf", "nan"):
        with pytest.raises(UsageError, match="is not a number of seconds"):
            adopt.main(["--examples=elementwise", f"--timeout={limit}"])


def test_what_is_committed_is_of_the_examples_of_the_suite():
    if not adopting_examples.path_of().is_file():
        pytest.skip("no table is committed")
    table = adopting_examples.read()
    known = {run.path for run in adopting_examples.runs("")}
    assert {case.path for case in table.cases} <= known
    assert all((case.reached == "compiled") == (not case.reason) for case in table.cases)
