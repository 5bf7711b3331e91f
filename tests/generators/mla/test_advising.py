"""The script that answers a table of shapes gives what the advisor's page gives."""

from __future__ import annotations

import csv
import io
import runpy

import pytest

from generators.mla import advisor, regimes
from mla_var3.paths import repo_root

SCRIPT = runpy.run_path(str(repo_root() / "examples/first/advise.py"))


@pytest.fixture(scope="module")
def data(site):
    return advisor.measured(site)


def test_a_shape_that_was_measured_has_its_own_record(data):
    same = [a for a in data["answers"] if all(a[k] == v for k, v in SCRIPT["ASKED"].items())]
    assert len(same) > 50
    for answer in same:
        shape = {name: answer[name] for name in (*advisor.AXES, "mask")}
        assert SCRIPT["far"](data, shape, answer) == 0


def test_the_distance_is_the_pages_own(data):
    shape = {"b": 48, "h": 96, "s": 2, "t": 5000, "mask": "causal"}
    for answer in data["answers"]:
        found = answer["found"]
        own = all(one["language"] == "library" for one in found)
        more = 2 * found[0]["stale"] + 3 * own
        assert SCRIPT["far"](data, shape, answer) == pytest.approx(
            advisor.distance(shape, answer) + more
        )


def test_a_table_of_shapes_is_answered_from_the_page(data, tmp_path, capsys):
    (tmp_path / "index.html").write_text(regimes.calculator(data))
    (tmp_path / "shapes.csv").write_text("b,h,s,t\n32,128,1,4096\n9,16,1,77777\n")
    SCRIPT["main"](tmp_path / "index.html", tmp_path / "shapes.csv")
    first, second = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert (first["measured at"], first["confidence"]) == ("b=32 h=128 s=1 t=4096", "high")
    assert first["version"].startswith("flash_mla@cute-dsl")
    assert second["confidence"] != "high"
