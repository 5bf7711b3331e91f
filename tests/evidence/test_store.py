"""Files of records: written whole, read back, found, and whatever else lies there named."""

from __future__ import annotations

import datetime
import errno
import json
import os
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mla_var3 import evidence, paths
from mla_var3.errors import RecordError
from mla_var3.evidence import renames, runs, store
from mla_var3.paths import repo_root

from .making import (
    NAMES,
    OUTCOMES,
    SCALARS,
    content,
    facts,
    passed,
    place_of,
    put,
    record,
    stage,
    timed,
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
    run = evidence.read(path)
    assert run.records == (made,)
    assert run.content_sha256 == run.digest()
    json.loads(path.read_bytes(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


@given(outcomes=st.lists(OUTCOMES, min_size=1, max_size=6))
def test_so_are_many_of_one_run(outcomes):
    made = [record(one, slug=f"b{i}") for i, one in enumerate(outcomes)]
    (run,) = runs.of(made)
    (again,) = [evidence.parse(run.text().encode(), "x.json")]
    assert again.records == tuple(made)
    assert again.text() == run.text()


@pytest.mark.parametrize("dirty", [True, False, None])
def test_so_is_what_could_not_be_told(tmp_path, dirty):
    for git in (evidence.Git(commit="c" * 40, dirty=dirty), None):
        path, _ = evidence.write(record(git=git), tmp_path / str(git is None))
        assert evidence.records_of(path) == (record(git=git),)


class TestRunFiles:
    def test_one_run_of_a_design_is_one_file(self, tmp_path):
        first, _ = evidence.write(timed_record(), tmp_path)
        second, _ = evidence.write(timed_record(kernel={"version": "v1"}), tmp_path)
        assert first == second == tmp_path / place_of(timed_record())
        assert first.name == "20261121T000000Z-aaaa.json"
        assert [r.kernel.version for r in evidence.records_of(first)] == ["v0", "v1"]

    @pytest.mark.parametrize(
        "change",
        [
            {"run": "bbbb"},
            {"toolchain": {"cuda-tile": "1.8.0"}},
            {"git": None},
            {"kernel": {"sources": {}}},
            {"outcome": timed(11.0)},
        ],
    )
    def test_what_was_measured_is_never_replaced(self, tmp_path, change):
        path, _ = evidence.write(timed_record(), tmp_path)
        before = path.read_bytes()
        other, changed = evidence.write(timed_record(**change), tmp_path)
        assert changed
        assert other != path
        assert path.read_bytes() == before
        assert evidence.records_of(other) == (timed_record(**change),)

    def test_protocols_and_facts_stand_in_it_once(self, tmp_path):
        for number in range(3):
            made = timed_record(slug=f"b{number}", outcome=timed(stages=[stage(static=facts())]))
            path, _ = evidence.write(made, tmp_path)
        run = evidence.read(path)
        assert (len(run.entries), len(run.protocols), len(run.facts)) == (3, 1, 1)

    def test_a_full_file_is_written_no_further(self, tmp_path, monkeypatch):
        monkeypatch.setattr(runs, "FULL", 3)
        made = [timed_record(slug=f"b{number}") for number in range(7)]
        paths = [evidence.write(one, tmp_path)[0] for one in made]
        assert [path.stem.rpartition("-")[2] for path in paths[::3]] == ["aaaa", "2", "3"]
        assert [len(evidence.records_of(path)) for path in evidence.files(tmp_path)] == [3, 1, 3]
        assert sorted(r.slug for r in evidence.find(tmp_path)) == [f"b{n}" for n in range(7)]

    def test_other_processes_files_are_left_alone(self, tmp_path, monkeypatch):
        path, _ = evidence.write(timed_record(), tmp_path)
        monkeypatch.setattr(store, "_begun", {})  # As another process has it.
        other, _ = evidence.write(timed_record(slug="b2"), tmp_path)
        assert other.name == "20261121T000000Z-aaaa-2.json"
        assert len(evidence.records_of(path)) == 1

    def test_an_entry_that_points_nowhere_is_refused(self):
        said = content(timed_record())
        said["entries"][0]["outcome"]["protocol"] = 1
        with pytest.raises(RecordError, match="protocol 1 is not in the file's list, which has 1"):
            evidence.parse(json.dumps(said).encode(), "x.json")
        said = content(timed_record())
        del said["entries"][0]["outcome"]["protocol"]
        with pytest.raises(RecordError, match="the protocol they were taken under come together"):
            evidence.parse(json.dumps(said).encode(), "x.json")

    def test_so_are_a_key_twice_and_a_version_without_sources(self):
        said = content(timed_record())
        said["entries"] *= 2
        with pytest.raises(RecordError, match="v0 b64-bf16 event stands in it twice"):
            evidence.parse(json.dumps(said).encode(), "x.json")
        said = content(timed_record())
        said["versions"] = {}
        with pytest.raises(RecordError, match="an entry is of v0, whose sources are not named"):
            evidence.parse(json.dumps(said).encode(), "x.json")


def test_a_renamed_stage_is_read_under_its_name_of_today(monkeypatch):
    old = timed_record(outcome=timed(stages=[stage("both.flash_mla_v12"), stage("combine")]))
    (run,) = runs.of([old])
    new = {("cutile-dsl", "flash_mla"): {"flash_mla": "attention"}}
    monkeypatch.setattr(renames, "STAGES", new)
    monkeypatch.setattr(renames, "KERNELS", {})
    read = evidence.parse(run.text().encode(), "x.json")
    (record,) = read.records
    assert [(s.name, s.kernel) for s in record.outcome.stages] == [
        ("both.attention", "both.flash_mla_v12"), ("combine", "combine"),
    ]  # fmt: skip
    assert list(read.as_measured()) == [old]
    failed = timed_record(outcome=evidence.Failed(error="no", stage="flash_mla_v12"))
    assert runs.started(failed).records[0].outcome.stage == "attention"


WRITER = """
import sys
from mla_var3 import evidence
from tests.evidence.making import record, timed_record
root, run, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
from pathlib import Path
for number in range(count):
    evidence.write(timed_record(slug=f"b{number}", run=run), Path(root))
"""


@pytest.mark.slow
def test_processes_that_write_into_one_folder_lose_nothing(tmp_path):
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), run, "30"], cwd=repo_root())
        for run in ("aaaa", "aaaa", "bbbb", "cccc")  # Two of one run: a process and its child.
    ]
    assert [writer.wait() for writer in writers] == [0] * 4
    assert len(evidence.files(tmp_path)) == 4
    found = list(evidence.find(tmp_path))
    assert len(found) == 120
    assert len({(r.slug, r.run) for r in found}) == 90
    assert len(evidence.newest(found)) == 30


class TestWrite:
    def test_a_compile_repeated_is_not_written_again(self, tmp_path):
        path, _ = evidence.write(record(), tmp_path)
        before = path.read_bytes()
        again = record(
            run="bbbb",
            git=evidence.Git(commit="d" * 40, dirty=True),
            time=datetime.datetime(2027, 1, 1, tzinfo=datetime.UTC),
        )
        assert evidence.write(again, tmp_path) == (path, False)
        assert path.read_bytes() == before

    def test_nor_is_one_that_differs_by_chance(self, tmp_path):
        """tileiras makes other machine code of the same tile IR from run to run."""
        stages = [stage("a", static=facts(shared_bytes=213_304))]
        path, _ = evidence.write(record(passed(stages=stages)), tmp_path)
        other = [stage("a", static=facts(shared_bytes=223_528))]
        assert evidence.write(record(passed(stages=other), run="bbbb"), tmp_path) == (path, False)
        renamed = [stage("b", static=facts(shared_bytes=223_528))]
        assert evidence.write(record(passed(stages=renamed), run="cccc"), tmp_path)[1]

    def test_a_time_measured_again_is(self, tmp_path):
        path, _ = evidence.write(timed_record(), tmp_path)
        other, changed = evidence.write(timed_record(run="bbbb"), tmp_path)
        assert changed
        assert other != path

    @pytest.mark.parametrize(
        "change",
        [
            {"outcome": passed(artefacts=["x"])},
            {"outcome": evidence.Failed(error="no")},
            {"toolchain": {"cuda-tile": "1.8.0"}},
            {"problem": {"b": 65}},
            {"kernel": {"sources": {}}},
        ],
    )
    def test_any_other_fact_is_a_new_record(self, tmp_path, change):
        evidence.write(record(), tmp_path)
        path, changed = evidence.write(record(**change), tmp_path)
        assert changed
        assert evidence.records_of(path)[-1] == record(**change)
        assert len(list(evidence.find(tmp_path))) == 2

    @pytest.mark.parametrize("text", ["", "{", "[]", '{"schema_version": 3}'])
    def test_a_file_that_cannot_be_read_is_left_alone(self, tmp_path, monkeypatch, text):
        path, _ = evidence.write(record(), tmp_path)
        path.write_text(text)
        monkeypatch.setattr(store, "_begun", {})
        other, changed = evidence.write(record(), tmp_path)
        assert changed
        assert other != path
        assert path.read_text() == text

    def test_a_full_disk_is_one_sentence_and_changes_nothing(self, tmp_path, monkeypatch):
        path, _ = evidence.write(record(), tmp_path)
        before = path.read_bytes()

        def full(*_args):
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(paths.os, "fsync", full)
        for change in ({}, {"run": "bbbb"}):
            with pytest.raises(RecordError, match=r"cannot write below .*: No space left"):
                evidence.write(record(passed(artefacts=["x"]), slug="b2", **change), tmp_path)
        assert path.read_bytes() == before
        assert [p.name for p in path.parent.iterdir()] == [path.name]

    def test_a_run_that_is_killed_leaves_the_old_file(self, tmp_path, monkeypatch):
        path, _ = evidence.write(record(), tmp_path)
        before = path.read_bytes()
        # kill -9 between writing and renaming: neither the rename nor the clean-up happens.
        with monkeypatch.context() as patch:
            patch.setattr(paths.os, "replace", lambda *_: (_ for _ in ()).throw(SystemExit))
            patch.setattr(paths.Path, "unlink", lambda *_args, **_options: None)
            with pytest.raises(SystemExit):
                evidence.write(record(slug="b2"), tmp_path)
        assert path.read_bytes() == before
        (left,) = [p for p in path.parent.iterdir() if p != path]
        evidence.write(record(slug="b2"), tmp_path)
        assert left.exists(), "it is as young as one that somebody writes right now"
        os.utime(left, (0, 0))
        evidence.write(record(slug="b3"), tmp_path)
        assert [p.name for p in path.parent.iterdir()] == [path.name]

    def test_what_another_user_left_is_theirs(self, tmp_path, monkeypatch):
        left = tmp_path / ".event.json.abcdefgh"
        left.touch()
        os.utime(left, (0, 0))
        monkeypatch.setattr(store.os, "getuid", lambda: left.stat().st_uid + 1)
        assert evidence.sweep(tmp_path) == []
        assert left.exists()

    def test_sweeping_takes_nothing_but_leftovers(self, tmp_path):
        left = [".event.json.a1_xyz09", ".static.json.abcdefgh"]
        kept = ["event.json", ".event.json", ".event.json.short", ".hidden", "a.json.abcdefgh",
                ".event.json.abcdefghi"]  # fmt: skip
        for name in left + kept:
            (tmp_path / name).touch()
            os.utime(tmp_path / name, (0, 0))
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
        with pytest.raises(RecordError, match=r"cannot read records .*: no such file"):
            evidence.read(tmp_path / "x.json")

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            (lambda r: entry(r).update(slug=7), r"entries\.0\.slug: "),
            (lambda r: stage_of(r).update(grid=[-1]), r"entries\.0\.outcome\..*\.0\.grid"),
            (lambda r: stage_of(r).update(grid=["12"]), r"entries\.0\.outcome\..*\.0\.grid"),
            (lambda r: stage_of(r).update(flops=1), r"entries\.0\.outcome\..*\.0\.flops"),
            (lambda r: entry(r)["outcome"].update(status="odd"), r"entries\.0\.outcome: "),
            (lambda r: entry(r)["outcome"].pop("status"), r"entries\.0\.outcome: "),
            (lambda r: r.update(schema_version=0), "schema_version: "),
            (lambda r: r.update(schema_version="3"), "schema_version: "),
            (lambda r: r.pop("schema_version"), ""),
            (lambda r: r.update(content_sha256="abc"), "content_sha256: "),
            (lambda r: r["git"].update(commit="unknown"), r"git\.commit: "),
        ],
    )
    def test_the_first_offending_field_is_named(self, tmp_path, change, said):
        path, _ = evidence.write(record(), tmp_path)
        text = json.loads(path.read_text())
        change(text)
        path.write_text(json.dumps(text))
        if said == "":  # A file is of the current schema unless it says otherwise.
            assert evidence.records_of(path) == (record(),)
            return
        with pytest.raises(RecordError, match=f"holds no records: {said}") as caught:
            evidence.read(path)
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize("version", [4, 10**9])
    def test_a_newer_schema_is_named_as_newer(self, tmp_path, version):
        path = put(tmp_path, {"schema_version": version, "news": []}, place_of(record()))
        with pytest.raises(RecordError, match=f"has schema version {version}, newer than 3, .*"
                                              "; update it"):  # fmt: skip
            evidence.read(path)


def entry(said):
    return said["entries"][0]


def stage_of(said):
    return entry(said)["outcome"]["stages"][0]


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
        assert text.startswith((f"{path} holds no records: ", f"cannot read records {path}: "))
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
        [{"design": "flash_mla"}, {"target": "static/sm_90"}],
    )
    def test_a_file_in_other_folders_is_not_read(self, root, wanted):
        before = self.found(root, **wanted)
        other = root / "cpu/cutile/mla/flash_attention/x.json"
        other.parent.mkdir(parents=True)
        other.write_text("not a record")
        assert self.found(root, **wanted) == before
        with pytest.raises(RecordError):
            self.found(root)

    def test_leftovers_and_what_is_no_record_are_not_listed(self, root):
        before = evidence.files(root)
        (before[0].parent / ".event.json.abcdefgh").write_text("{")
        (root / "conformance").mkdir()
        (root / "conformance" / "x.json").write_text("{}")
        assert evidence.files(root) == before == sorted(before)


class TestAt:
    """A record is named by its key, and is the newest of that key unless a run is named."""

    @pytest.fixture
    def root(self, tmp_path):
        for day, run in enumerate(("aaaa", "bbbb", "cccc"), 1):
            time = datetime.datetime(2026, 11, day, tzinfo=datetime.UTC)
            evidence.write(timed_record(10.0 * day, run=run, time=time), tmp_path)
            if run != "cccc":
                made = timed_record(5.0, run=run, time=time, kernel={"version": "v1"})
                evidence.write(made, tmp_path)
        return tmp_path

    name = evidence.address(timed_record())

    def test_the_newest(self, root):
        assert evidence.at(self.name, root).run == "cccc"
        assert evidence.at(self.name.removeprefix("results/"), root).run == "cccc"
        assert [r.run for r in evidence.newest(evidence.find(root))] == ["cccc", "bbbb"]

    def test_that_of_a_run(self, root):
        assert evidence.at(f"{self.name}@aaaa", root).outcome.total.median_us == 10.0
        assert evidence.Index(root).at(f"{self.name}@bbbb").outcome.total.median_us == 20.0

    @pytest.mark.parametrize("name", ["x", "results/../x", f"{name}.json", f"{name}@dddd", ""])
    def test_none(self, root, name):
        for read in (lambda: evidence.at(name, root), lambda: evidence.Index(root).at(name)):
            with pytest.raises(RecordError):
                read()

    def test_a_pair_is_of_the_newest_run_that_has_both(self, root):
        index = evidence.Index(root)
        other = self.name.replace("/v0/", "/v1/")
        assert [r.run for r in index.pair(self.name, other)] == ["bbbb", "bbbb"]
        assert [r.run for r in index.pair(other, self.name)] == ["bbbb", "bbbb"]
        assert [r.run for r in index.pair(self.name, f"{other}@aaaa")] == ["cccc", "aaaa"]

    def test_one_that_was_skipped_hides_none_that_was_made(self, tmp_path):
        evidence.write(record(), tmp_path)
        later = datetime.datetime(2027, 1, 1, tzinfo=datetime.UTC)
        skipped = record(evidence.Skipped(reason="no compiler"), run="bbbb", time=later)
        evidence.write(skipped, tmp_path)
        (standing,) = evidence.newest(evidence.find(tmp_path))
        assert standing == record()
        assert evidence.at(evidence.address(record()), tmp_path) == record()


@pytest.mark.slow
def test_committed_files_conform_and_lie_where_they_say():
    schema, root = evidence.json_schema(), repo_root() / "results"
    found = evidence.files(root)
    assert found, "no record is committed"
    for path in found:
        conforms(json.loads(path.read_text()), schema, schema, str(path))
        assert path.parent == root / evidence.read(path).folder
