import datetime

import pytest

from mla_var3.errors import RecordError
from mla_var3.evidence import Fingerprint, builds
from mla_var3.evidence.builds import Build, Case, Compiled, File, Table, Version

NOW = datetime.datetime(2026, 11, 23, tzinfo=datetime.UTC)
PRINT = Fingerprint(code="0123456789abcdef", grid=(132, 1, 1))


def case(**problem) -> Case:
    return Case(device="nvidia-h200-sxm", problem=problem, tilings=({"blocks": None, "lazy": 0.0},))


def table() -> Table:
    compiled = Compiled(case=case(b=1, causal=False), stages={"attention": PRINT})
    build = Build(sources=("1" * 16,), compiled=(compiled, compiled))
    files = {"kernels/a.py": File(blob="0" * 40, syntax="2" * 16)}
    version = Version(files=files, builds=(build, Build(sources=("3" * 16,), why="faster")))
    return Table(toolchain={"tool": "1.0"}, versions={"v0": version})


def test_a_table_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "design.json"
    builds.write(table(), path)
    assert builds.read(path) == table()


def test_each_case_has_a_line_of_its_own(tmp_path):
    path = tmp_path / "design.json"
    builds.write(table(), path)
    lines = [line for line in path.read_text().splitlines() if '"case"' in line]
    assert len(lines) == 2
    assert all(line.strip(" ,").startswith("{") for line in lines)


def test_where_no_table_is_it_is_empty_and_what_is_none_is_refused(tmp_path):
    assert builds.read(tmp_path / "none.json") == Table()
    (tmp_path / "bad.json").write_text('{"versions": 3}')
    with pytest.raises(RecordError, match=r"bad\.json is no table of fingerprints"):
        builds.read(tmp_path / "bad.json")


def test_cases_are_equal_whatever_the_order_of_their_fields():
    assert case(b=1, s=2).key == case(s=2, b=1).key
    assert case(b=1).key != case(b=2).key


def test_a_comment_is_no_change_and_a_name_is(tmp_path):
    file = tmp_path / "kernel.py"
    file.write_text('"""Says."""\nx = 1  # one\n')
    before = builds.syntax_of(file)
    file.write_text('"""Says more."""\n\n# two\nx = (\n    1\n)\n')
    assert builds.syntax_of(file) == before
    file.write_text("y = 1\n")
    assert builds.syntax_of(file) != before
    assert builds.syntax_of(tmp_path / "gone.py") is None


def test_a_state_of_the_sources_is_found_in_its_build():
    sources = {"kernels/a.py": "0" * 40, "kernels/b.py": "1" * 40}
    state = builds.state_digest(sources)
    assert state == builds.state_digest(dict(reversed(sources.items())))
    version = Version(files={}, builds=(Build(sources=()), Build(sources=(state,))))
    assert version.build_of(sources, NOW) is version.builds[1]
    assert version.build_of({"kernels/a.py": "2" * 40}, NOW) is None


def test_what_ran_before_a_declared_change_is_of_the_older_build_of_equal_sources():
    sources = {"kernels/a.py": "0" * 40}
    state = builds.state_digest(sources)
    new = Build(sources=(state,), why="another constant of the runtime", since=NOW)
    version = Version(files={}, builds=(new, Build(sources=(state,))))
    day = datetime.timedelta(days=1)
    assert version.build_of(sources, NOW + day) is version.builds[0]
    assert version.build_of(sources, NOW - day) is version.builds[1]
