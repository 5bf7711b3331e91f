"""Reasons for what no problem of a check reaches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mla_var3.errors import HyperMlaError
from mla_var3.runtime import registry, unreached

VERSION = registry.find("gemm@cutile-dsl", "v1")
REASON = "a sum has at least one term, so that a tile has a step"
GAP = "loop gemm_v1.py:110: for step in range(2): (gemm) never ran zero times"
NAMED = f'[[gap]]\ngap = "{unreached.without_line(GAP)}"\nwhy = "{REASON}"\n'


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(unreached, "path_of", lambda _: tmp_path / unreached.FILE)
    return tmp_path / unreached.FILE


def test_nothing_is_named_where_there_is_no_file(file):
    assert unreached.named(VERSION) == {}
    assert unreached.told_apart([GAP], {}) == ([GAP], {})


def test_a_gap_is_named_wherever_its_line_stands(file):
    file.write_text(NAMED)
    other = GAP.replace("never ran zero times", "never ran more than once")
    moved = GAP.replace(":110:", ":7:11:")
    assert unreached.told_apart([moved, other], unreached.named(VERSION)) == (
        [other],
        {moved: REASON},
    )


def test_sizes_that_lines_need_are_named_with_their_reason(file):
    text = f'[[reach]]\nfields = {{m = 7, n = 1}}\nwhy = "{REASON}"\n'
    file.write_text(text + 'versions = ["v0"]\n')
    assert unreached.reaching(registry.find("gemm@cutile-dsl", "v0")) == (
        unreached.Reaching({"m": 7, "n": 1}, tiling={}),
    )
    assert unreached.reaching(VERSION) == ()
    file.write_text(text + "sms = 5\n")
    assert [one.sms for one in unreached.reaching(VERSION)] == [5]
    file.write_text(text + "tiling = {lazy = 24}\nrefused = true\n")
    (one,) = unreached.reaching(VERSION)
    assert (one.tiling, one.refused) == ({"lazy": 24}, True)
    file.write_text(text.replace(REASON, "not needed"))
    with pytest.raises(HyperMlaError, match="'not needed' is no reason"):
        unreached.reaching(VERSION)


def test_a_reason_may_hold_for_some_versions_only(file):
    file.write_text(NAMED + 'versions = ["v0"]\n')
    assert unreached.named(VERSION) == {}
    assert len(unreached.named(registry.find("gemm@cutile-dsl", "v0"))) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (NAMED.replace(REASON, "not needed"), "'not needed' is no reason"),
        (NAMED + NAMED, "names a gap twice"),
        (NAMED + "until = 3\n", "Extra inputs are not permitted"),
        ("[[gap\n", "Expected ']]'"),
    ],
)
def test_what_gives_no_reason_is_refused(file, text, said):
    file.write_text(text)
    with pytest.raises(HyperMlaError, match=said):
        unreached.named(VERSION)


def test_findings_and_edits_are_named_with_their_reason(file):
    file.write_text(
        f'[[finding]]\nkind = "race"\nfile = "kit.py"\nversions = ["v1"]\nwhy = "{REASON}"\n'
        f'[[same]]\nedits = ["f: edge: a < b -> a <= b"]\nwhy = "{REASON}"\n'
    )
    (one,) = unreached.findings(VERSION)
    assert (one.kind, one.file, one.line, one.reason) == ("race", "kit.py", None, REASON)
    assert unreached.findings(registry.find("gemm@cutile-dsl", "v0")) == ()
    assert unreached.same(VERSION) == {"f: edge: a < b -> a <= b": REASON}


DESIGNS = sorted({unreached.path_of(v) for v in registry.versions()})


@pytest.mark.parametrize("path", [p for p in DESIGNS if p.exists()], ids=lambda p: p.parent.name)
def test_what_is_named_stands_in_the_sources(path):
    versions = [v for v in registry.versions() if unreached.path_of(v) == path]
    text = " ".join(
        " ".join(file.read_text("utf-8").split()) for v in versions for file in v.source_files()
    )
    for gap in {gap for v in versions for gap in unreached.named(v)}:
        rest = gap.partition(".py: ")[2]
        if rest:
            assert rest.partition(" (")[0] in text or rest.rpartition(" (")[0] in text, gap


COPIES = f"""# Of all.

[[gap]]
gap = "loop common.py: for i in range(2): never ran zero times"
why = "{REASON}"

[[gap]]
gap = "loop gemm_v1.py: for i in range(2): never ran zero times"
why = "{REASON}"

# Of some.
[[gap]]
gap = "loop gemm.py: for i in range(2): never ran zero times"
why = "{REASON}"
versions = ["v0"]

[[reach]]
fields = {{ m = 7 }}
why = "{REASON}"
versions = [
  "v0",
  "v1",
]

[[same]]
edits = ["gemm: dropped bound"]
why = "{REASON}"
versions = ["v1"]

[[finding]]
kind = "race"
file = "gemm_v1.py"
why = "{REASON}"
versions = ["v1"]
"""


def test_what_is_named_for_a_version_is_named_for_its_copy(file):
    file.write_text(COPIES)
    base, copy = registry.find("gemm@cutile-dsl", "v0"), replace(VERSION, version="v7")
    before = [unreached.named(base), unreached.reaching(base), unreached.findings(base)]
    text = unreached.for_copy(VERSION, "v7")
    file.write_text(text)
    assert unreached.named(copy).keys() - unreached.named(base).keys() == set()
    assert "loop gemm_v7.py: for i in range(2): never ran zero times" in unreached.named(copy)
    assert "loop gemm.py: for i in range(2): never ran zero times" not in unreached.named(copy)
    assert unreached.reaching(copy) == unreached.reaching(VERSION) != ()
    assert unreached.same(copy) == unreached.same(VERSION) != {}
    assert [one.file for one in unreached.findings(copy)] == ["gemm_v7.py"]
    assert [one.file for one in unreached.findings(VERSION)] == ["gemm_v1.py"]
    assert [unreached.reaching(base), unreached.findings(base)] == before[1:]
    assert unreached.named(base).items() >= before[0].items()
    assert "\n\n# Of some.\n[[gap]]\n" in text
    assert unreached.for_copy(VERSION, "v7") == text


def test_a_copy_needs_nothing_where_nothing_is_named_for_the_version(file):
    assert unreached.for_copy(VERSION, "v7") == ""
    file.write_text(COPIES)
    left = unreached.for_copy(replace(VERSION, version="v5"), "v7")
    assert left.count("v7") == left.count("gemm_v7.py") == 1
