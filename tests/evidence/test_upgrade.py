"""Older files become files of runs and lose no value; what was overwritten comes back."""

from __future__ import annotations

import contextlib
import copy
import datetime
import functools
import hashlib
import json
import operator

import pytest

from mla_var3 import evidence
from mla_var3.errors import RecordError
from mla_var3.evidence import runs, sources, upgrade
from tests.repository import git

from .making import duration, facts, record, stage, timed, timed_record


def old(made, flops=10**9):
    """A file of schema 2 that states a record."""
    said = {"schema_version": 2, **made.model_dump(mode="json", exclude_none=True)}
    said["outcome"] |= {"flops": flops, "bytes": 10**6}
    for each in said["outcome"]["stages"]:
        each |= {"flops": flops, "bytes": 10**6}
    text = json.dumps(said, sort_keys=True, separators=(",", ":"))
    return {**said, "content_sha256": hashlib.sha256(text.encode()).hexdigest()}


def put(root, said, made):
    path = root / f"{made.key}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(said))
    return path


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "repo_root", lambda: tmp_path)
    git(tmp_path, "init", "-q")
    return tmp_path


@pytest.fixture
def root(checkout):
    return checkout / "results"


MADE = (
    timed_record(outcome=timed(stages=[stage(duration=duration(), counters={"x": 0.0})])),
    timed_record(kernel={"version": "v1"}),
    record(run="bbbb"),
)


def test_every_value_is_found_again_and_the_older_files_go(root):
    before = [put(root, old(made), made) for made in MADE]
    done = upgrade.upgrade(root)
    assert list(evidence.find(root)) == sorted(MADE, key=lambda each: each.key)
    assert not any(path.exists() for path in before)
    assert sorted(root.rglob("*.json")) == sorted(done.files)
    assert [path.name for path in done.files] == [
        "20261121T000000Z-aaaa.json", "20261121T000000Z-bbbb.json",
    ]  # fmt: skip
    assert (done.records, done.restored) == (3, 0)
    assert done.values == sum(
        len(dict(upgrade.leaves(made.model_dump(mode="json", exclude_none=True)))) for made in MADE
    )
    assert upgrade.upgrade(root).records == 0, "there is nothing left to do"


def numbers(value, place=()):
    """The place of every number."""
    if isinstance(value, dict | list):
        for name, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from numbers(part, (*place, name))
    elif isinstance(value, int | float):
        yield place


def changed(made):
    """A record with one number after the other wrong."""
    said = made.model_dump(mode="json", exclude_none=True)
    for place in numbers(said):
        other = copy.deepcopy(said)
        *way, last = place
        inner = functools.reduce(operator.getitem, way, other)
        inner[last] += 1
        with contextlib.suppress(ValueError):  # No record says this.
            yield place, evidence.Record.model_validate_json(json.dumps(other))


def test_a_value_that_is_lost_or_other_is_found_out(tmp_path):
    tried = 0
    outcome = timed(stages=[stage(duration=duration(), static=facts())])
    made = timed_record(outcome=outcome)
    for place, wrong in changed(made):
        path = tmp_path / f"{tried}.json"
        path.write_text(runs.started(wrong).text())
        with pytest.raises(RecordError, match="is not found again"):
            upgrade.prove([old(made)], [path])
        tried += 1
        assert place
    assert tried > 10
    path.write_text(runs.started(made).text())
    assert upgrade.prove([old(made)], [path]) > 40
    with pytest.raises(RecordError, match="is not found again"):
        upgrade.prove([old(made)], [])


def test_a_proof_that_fails_leaves_all_as_it_was(root, monkeypatch):
    before = [put(root, old(made), made) for made in MADE]
    monkeypatch.setattr(upgrade, "prove", lambda *_: (_ for _ in ()).throw(RecordError("no")))
    with pytest.raises(RecordError, match="no"):
        upgrade.upgrade(root)
    assert sorted(root.rglob("*.json")) == sorted(before)


def test_a_file_that_is_no_record_stops_it(root):
    path = put(root, old(MADE[0]), MADE[0])
    said = old(MADE[1])
    del said["slug"]
    put(root, said, MADE[1])
    with pytest.raises(RecordError, match="slug"):
        upgrade.upgrade(root)
    assert path.exists()


class TestWhatWasOverwritten:
    @pytest.fixture
    def commit(self, checkout, root):
        def commit(said, made):
            put(root, said, made)
            git(checkout, "add", ".")
            git(checkout, "commit", "-qm", "x")

        return commit

    def at(self, day, **changes):
        time = datetime.datetime(2026, 11, day, tzinfo=datetime.UTC)
        return timed_record(10.0 * day, time=time, run=f"run{day}", **changes)

    def test_it_comes_back(self, root, commit):
        for day in (1, 2, 3):
            commit(old(self.at(day)), self.at(day))
        done = upgrade.upgrade(root)
        assert (done.records, done.restored) == (1, 2)
        assert list(evidence.find(root)) == [self.at(day) for day in (1, 2, 3)]

    @pytest.mark.parametrize("reason", ["taken back", "edited", "compiled", "schema 1", "nothing"])
    def test_but_not_what_nobody_believed_or_can_be_had_again(self, root, commit, reason):
        first, last = self.at(1), self.at(2)
        said = old(first)
        if reason == "taken back":
            said = old(self.at(3))
        if reason == "edited":
            said["outcome"]["total"]["min_us"] = 1.0
        if reason == "compiled":
            first, last = record(run="run1"), record(run="run2", slug="b64-bf16")
            said = old(first)
        if reason == "schema 1":
            said["schema_version"] = 1
        if reason == "nothing":
            said = old(self.at(1, kernel={"sources": {}}))
        commit(said, first)
        commit(old(last), last)
        assert upgrade.upgrade(root).restored == 0
        assert list(evidence.find(root)) == [last]


def test_leaves_tell_kinds_apart():
    assert dict(upgrade.leaves({"a": [1, 1.0, True, None, {}, []], "b": {"c": "1"}})) == {
        "/a/0": "1", "/a/1": "1.0", "/a/2": "true", "/a/4": "{}", "/a/5": "[]", "/b/c": '"1"',
    }  # fmt: skip
