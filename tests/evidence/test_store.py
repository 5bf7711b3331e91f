"""Files of records: written whole, read back, found, and whatever else lies there named."""

from __future__ import annotations

import datetime
import errno
import json
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mla_var3 import evidence, paths
from mla_var3.errors import RecordError
from mla_var3.paths import repo_root

from .making import (
    NAMES,
    OUTCOMES,
    SCALARS,
    content,
    passed,
    put,
    record,
    timed_record,
)
from .test_model import conforms


@settings(max_examples=50)
@given(outcome=OUTCOMES, problem=st.dictionaries(NAMES, SCALARS, max_size=4))
def test_what_is_written_is_read_back(tmp_path_factory, outcome, problem):
    root = tmp_path_factory.mktemp("results")
    made = record(outcome, problem=problem)
    path, changed = evidence.write(made, root)
    assert changed
    read = evidence.read(path)
    assert read.facts() == made.facts()
    assert read.content_sha256 == read.digest() == made.digest()
    before = path.read_bytes()
    assert evidence.write(made, root) == (path, False)
    assert path.read_bytes() == before
    json.loads(before, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


@pytest.mark.parametrize("dirty", [True, False, None])
@pytest.mark.parametrize("run", ["aaaa", None])
def test_so_is_what_could_not_be_told(tmp_path, dirty, run):
    for git in (evidence.Git(commit="c" * 40, dirty=dirty), None):
        made = record(git=git, run=run)
        path, _ = evidence.write(made, tmp_path / str(git is None))
        assert evidence.read(path).model_dump(exclude={"content_sha256"}) == made.model_dump(
            exclude={"content_sha256"}
        )


class TestWrite:
    def test_run_time_and_commit_alone_change_nothing(self, tmp_path):
        path, _ = evidence.write(record(), tmp_path)
        before = path.read_bytes()
        again = record(
            run="bbbb",
            git=evidence.Git(commit="d" * 40, dirty=True),
            time=datetime.datetime(2027, 1, 1, tzinfo=datetime.UTC),
        )
        assert evidence.write(again, tmp_path) == (path, False)
        assert path.read_bytes() == before

    @pytest.mark.parametrize(
        "change",
        [
            {"outcome": passed(flops=11)},
            {"outcome": evidence.Failed(error="no")},
            {"toolchain": {"cuda-tile": "1.8.0"}},
            {"problem": {"b": 65}},
            {"kernel": {"sources": {}}},
        ],
    )
    def test_any_fact_changes_the_file(self, tmp_path, change):
        path, _ = evidence.write(record(), tmp_path)
        assert evidence.write(record(**change), tmp_path) == (path, True)
        assert evidence.read(path).facts() == record(**change).facts()

    @pytest.mark.parametrize("text", ["", "{", "[]", '{"schema_version": 3}'])
    def test_an_unreadable_record_is_replaced(self, tmp_path, text):
        path, _ = evidence.write(record(), tmp_path)
        path.write_text(text)
        assert evidence.write(record(), tmp_path) == (path, True)
        assert evidence.read(path).facts() == record().facts()

    @pytest.mark.parametrize("change", [{"run": "zzzz"}, {"content_sha256": ""}])
    def test_an_edited_record_is_replaced_though_its_facts_are_the_same(self, tmp_path, change):
        path, _ = evidence.write(record(), tmp_path)
        put(tmp_path, content(record()) | change, record().path)
        assert evidence.write(record(), tmp_path) == (path, True)
        assert evidence.read(path).run == "aaaa"

    def test_a_full_disk_is_one_sentence_and_changes_nothing(self, tmp_path, monkeypatch):
        path, _ = evidence.write(record(), tmp_path)
        before = path.read_bytes()

        def full(*_args):
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(paths.os, "fsync", full)
        with pytest.raises(RecordError, match=f"cannot write {path}: No space left on device"):
            evidence.write(record(passed(flops=7)), tmp_path)
        assert path.read_bytes() == before
        assert [p.name for p in path.parent.iterdir()] == ["static.json"]

    def test_a_run_that_is_killed_leaves_the_old_file_and_the_next_sweeps(
        self, tmp_path, monkeypatch
    ):
        path, _ = evidence.write(record(), tmp_path)
        before = path.read_bytes()
        # kill -9 between writing and renaming: neither the rename nor the clean-up happens.
        with monkeypatch.context() as patch:
            patch.setattr(paths.os, "replace", lambda *_: (_ for _ in ()).throw(SystemExit))
            patch.setattr(paths.Path, "unlink", lambda *_args, **_options: None)
            with pytest.raises(SystemExit):
                evidence.write(record(passed(flops=7)), tmp_path)
        assert path.read_bytes() == before
        assert len(list(path.parent.iterdir())) == 2
        evidence.write(record(passed(flops=7)), tmp_path)
        assert [p.name for p in path.parent.iterdir()] == ["static.json"]

    def test_sweeping_takes_nothing_but_leftovers(self, tmp_path):
        left = [".event.json.a1_xyz09", ".static.json.abcdefgh"]
        kept = ["event.json", ".event.json", ".event.json.short", ".hidden", "a.json.abcdefgh",
                ".event.json.abcdefghi"]  # fmt: skip
        for name in left + kept:
            (tmp_path / name).touch()
        assert sorted(p.name for p in evidence.sweep(tmp_path)) == sorted(left)
        assert sorted(p.name for p in tmp_path.iterdir()) == sorted(kept)
        assert evidence.sweep(tmp_path / "missing") == []

    def test_the_checkouts_results_are_the_default(self, tmp_path, monkeypatch):
        monkeypatch.setenv("HYPERMLA_ROOT", str(tmp_path))
        path, _ = evidence.write(record())
        assert path.is_relative_to(tmp_path / "results")
        assert [found.facts() for found in evidence.find()] == [record().facts()]


class TestRead:
    def test_a_missing_file(self, tmp_path):
        with pytest.raises(RecordError, match=r"cannot read record .*: no such file"):
            evidence.read(tmp_path / "x.json")

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            (lambda r: r.update(slug=7), "slug: "),
            (lambda r: r["outcome"]["stages"][0].update(flops=-1), r"outcome\..*\.0\.flops"),
            (lambda r: r["outcome"]["stages"][0].update(flops="12"), r"outcome\..*\.0\.flops"),
            (lambda r: r["outcome"]["stages"][0].update(flops=True), r"outcome\..*\.0\.flops"),
            (lambda r: r["outcome"].update(status="odd"), "outcome: "),
            (lambda r: r["outcome"].pop("status"), "outcome: "),
            (lambda r: r.update(schema_version=0), "schema_version: "),
            (lambda r: r.update(schema_version="2"), "schema_version: "),
            (lambda r: r.pop("schema_version"), ""),
            (lambda r: r["kernel"].update(source_sha256="abc"), r"kernel\.source_sha256"),
            (lambda r: r.update(content_sha256="abc"), "content_sha256: "),
            (lambda r: r["git"].update(commit="unknown"), r"git\.commit: "),
        ],
    )
    def test_the_first_offending_field_is_named(self, tmp_path, change, said):
        path, _ = evidence.write(record(), tmp_path)
        text = json.loads(path.read_text())
        change(text)
        path.write_text(json.dumps(text))
        if said == "":  # A record is of the current schema unless it says otherwise.
            assert evidence.read(path).facts() == record().facts()
            return
        with pytest.raises(RecordError, match=f"is not a record: {said}") as caught:
            evidence.read(path)
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize("version", [3, 10**9])
    def test_a_newer_schema_is_named_as_newer(self, tmp_path, version):
        path = put(tmp_path, {"schema_version": version, "news": []}, record().path)
        with pytest.raises(RecordError, match=f"has schema version {version}, newer than 2, .*"
                                              "; update it"):  # fmt: skip
            evidence.read(path)


def deep(levels: int) -> str:
    return '{"a":' * levels + "1" + "}" * levels


def with_b(value: str) -> bytes:
    """A record whose one axis has that value."""
    return json.dumps(content(record())).replace('"b": 64', f'"b": {value}').encode()


HOSTILE = {
    "empty": b"",
    "half": b"{",
    "list": b"[]",
    "number": b"1",
    "null": b"null",
    "deep": deep(100_000).encode(),
    "deep and old": b'{"schema_version": 1, "kernel": {}, "outcome": ' + deep(900).encode() + b"}",
    "digits": b'{"schema_version": ' + b"9" * 5000 + b"}",
    "digits inside": with_b("9" * 5000),
    "NaN": with_b("NaN"),
    "infinity": with_b("-Infinity"),
    "not text": b"\xff\xfe\x00\x01",
    "half a character": b'{"slug": "\\ud800", "schema_version": 2}',
    "old list": b'{"schema_version": 1, "kernel": [], "outcome": []}',
    "old stages": b'{"schema_version": 1, "kernel": {}, "outcome": {"stages": [1, null, "x"]}}',
}


class TestHostileFiles:
    """Whatever lies there ends in one sentence, soon."""

    def refused(self, path):
        with pytest.raises(RecordError) as caught:
            evidence.read(path)
        text = str(caught.value)
        assert text.startswith((f"{path} is not a record: ", f"cannot read record {path}: "))
        assert "\n" not in text
        assert len(text) < len(str(path)) + 300
        return text

    @pytest.mark.parametrize("name", HOSTILE)
    def test_bytes_that_are_no_record(self, tmp_path, name):
        path = tmp_path / "x.json"
        path.write_bytes(HOSTILE[name])
        self.refused(path)

    def test_a_huge_file_is_not_read(self, tmp_path):
        path = tmp_path / "x.json"
        with path.open("wb") as file:
            file.truncate(1 << 40)
        assert "larger than" in self.refused(path)

    def test_a_link_to_endless_zeros(self, tmp_path):
        path = tmp_path / "x.json"
        path.symlink_to("/dev/zero")
        self.refused(path)

    def test_a_pipe_nobody_writes_to(self, tmp_path):
        path = tmp_path / "x.json"
        os.mkfifo(path)
        self.refused(path)

    def test_a_folder_and_a_circle_of_links(self, tmp_path):
        (tmp_path / "folder.json").mkdir()
        (tmp_path / "a.json").symlink_to("b.json")
        (tmp_path / "b.json").symlink_to("a.json")
        for name in ("folder", "a"):
            self.refused(tmp_path / f"{name}.json")


class TestFind:
    @pytest.fixture
    def root(self, tmp_path):
        for version in ("v2", "v0"):
            evidence.write(record(kernel={"version": version}), tmp_path)
            evidence.write(timed_record(kernel={"version": version}), tmp_path)
        evidence.write(record(kernel={"design": "flash_attention"}), tmp_path)
        evidence.write(record(kernel={"language": "cute-dsl", "package": "cute_python"}), tmp_path)
        return tmp_path

    def found(self, root, **wanted):
        return [(r.kernel.design, r.kernel.version, r.mode) for r in evidence.find(root, **wanted)]

    def test_it_filters_and_sorts(self, root):
        assert len(self.found(root)) == 6
        assert self.found(root, mode="event") == [
            ("flash_mla", "v0", "event"),
            ("flash_mla", "v2", "event"),
        ]
        assert self.found(root, target="static/sm_90", version="v2") == [
            ("flash_mla", "v2", "static")
        ]
        assert self.found(root, design="flash_attention") == [("flash_attention", "v0", "static")]
        assert self.found(root, language="cute-dsl") == [("flash_mla", "v0", "static")]
        assert self.found(root, design="none") == []
        assert list(evidence.find(root / "missing")) == []

    @pytest.mark.parametrize(
        "wanted",
        [{"design": "flash_mla"}, {"version": "v2"}, {"mode": "event"}, {"target": "static/sm_90"}],
    )
    def test_a_file_in_other_folders_is_not_read(self, root, wanted):
        before = self.found(root, **wanted)
        other = root / "cpu/cutile/mla/flash_attention/v1/b1/disabled.json"
        other.parent.mkdir(parents=True)
        other.write_text("not a record")
        assert self.found(root, **wanted) == before
        with pytest.raises(RecordError):
            self.found(root)

    def test_leftovers_and_what_is_no_record_are_not_listed(self, root):
        before = evidence.paths(root)
        (before[0].parent / ".event.json.abcdefgh").write_text("{")
        (root / "conformance").mkdir()
        (root / "conformance" / "x.json").write_text("{}")
        assert evidence.paths(root) == before == sorted(before)


def test_committed_records_conform_and_lie_where_they_say():
    schema, root = evidence.json_schema(), repo_root() / "results"
    found = evidence.paths(root)
    assert found, "no record is committed"
    for path in found:
        text = json.loads(path.read_text())
        if text["schema_version"] == evidence.SCHEMA_VERSION:
            conforms(text, schema, schema, str(path))
        assert root / evidence.read(path).path == path
