from __future__ import annotations

import datetime
import errno
import json
import math
import subprocess
import sys

import pytest
from factories import correctness, duration, passed, prediction, record, stage
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from mla_var3 import paths, records
from mla_var3.errors import RecordError
from mla_var3.paths import repo_root

NAMES = st.text("abcdefghijklmnopqrstuvwxyz-_0123456789", min_size=1, max_size=12)
TIMES = st.floats(0.01, 1e9)
SCALARS = st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(max_size=8)

durations = st.builds(
    records.Duration, median_us=TIMES, min_us=TIMES, max_us=TIMES, samples=st.integers(1, 10**6)
)
predictions = st.builds(
    records.Prediction, device=NAMES, time_us=TIMES, bound=st.sampled_from(["compute", "memory"]),
    intensity=TIMES, ridge=TIMES, tflops_ceiling=TIMES, gbps_ceiling=TIMES, ceiling_kind=NAMES,
)  # fmt: skip
stages = st.builds(
    records.Stage, name=NAMES, kernel=NAMES, tiling=st.dictionaries(NAMES, SCALARS, max_size=3),
    grid=st.lists(st.integers(1, 2**31 - 1), min_size=1, max_size=3), flops=st.integers(0, 10**18),
    bytes=st.integers(0, 10**15), duration=st.none() | durations,
    counters=st.dictionaries(NAMES, st.floats(allow_nan=False, allow_infinity=False), max_size=3),
    static=st.none() | st.dictionaries(NAMES, SCALARS, max_size=3),
    predictions=st.lists(predictions, max_size=2),
)  # fmt: skip
cases = st.builds(
    records.CheckedCase, problem=st.dictionaries(NAMES, SCALARS, max_size=3),
    max_relative_error=st.none() | st.floats(0, 1), mma_flops=st.none() | st.integers(0, 10**15),
)  # fmt: skip
checked = st.builds(
    records.Correctness, status=st.sampled_from(["passed", "failed"]), against=NAMES,
    tolerance=st.floats(0, 1), cases=st.lists(cases, min_size=1, max_size=3),
    message=st.none() | NAMES,
)  # fmt: skip
outcomes = st.one_of(
    st.builds(
        records.Passed, correctness=st.none() | checked, total=st.none() | durations,
        stages=st.lists(stages, min_size=1, max_size=3), flops=st.integers(0, 10**18),
        bytes=st.integers(0, 10**15), predictions=st.lists(predictions, max_size=2),
        roofline_fraction=st.none() | st.floats(0, 2), artefacts=st.lists(NAMES, max_size=2),
        peers=st.lists(
            st.builds(records.Peer, name=NAMES, version=NAMES, duration=durations), max_size=1
        ),
    ),
    st.builds(records.Failed, error=NAMES, stage=st.none() | NAMES),
)  # fmt: skip


@settings(max_examples=50)
@given(outcome=outcomes, problem=st.dictionaries(NAMES, SCALARS, max_size=4))
def test_what_is_written_is_read_back(tmp_path_factory, outcome, problem):
    root = tmp_path_factory.mktemp("results")
    made = record(outcome=outcome, problem=problem)
    path, changed = records.write(made, root)
    assert changed
    assert records.read(path).facts() == made.facts()
    before = path.read_bytes()
    assert records.write(made, root) == (path, False)
    assert path.read_bytes() == before
    json.loads(before, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


class TestPath:
    @pytest.mark.parametrize(
        ("target", "mode"), [("static/sm_90", "static"), ("nvidia-h200-sxm", "event")]
    )
    def test_it_names_target_version_problem_and_mode(self, tmp_path, target, mode):
        path, _ = records.write(record(version="v1", target=target, mode=mode), tmp_path)
        assert path == tmp_path / target / "flash_mla" / "v1" / "b64-bf16" / f"{mode}.json"

    @pytest.mark.parametrize("target", ["../x", "static/../..", "Static/sm_90", "static/sm_", ""])
    def test_a_target_cannot_leave_the_folder(self, target):
        with pytest.raises(ValidationError, match="target"):
            record(target=target)

    @pytest.mark.parametrize("slug", ["../x", "a/b", "", "a b"])
    def test_nor_can_a_slug(self, slug):
        with pytest.raises(ValidationError, match="slug"):
            record(slug=slug)


class TestStatusDecidesTheFields:
    @pytest.mark.parametrize("field", ["flops", "total", "stages", "predictions"])
    def test_a_failure_has_no_numbers(self, field):
        with pytest.raises(ValidationError, match=field):
            records.Failed(error="no", **{field: getattr(passed(total=duration()), field)})

    def test_a_success_has_no_error_and_a_stage(self):
        with pytest.raises(ValidationError, match="error"):
            passed(error="no")
        with pytest.raises(ValidationError, match="stages"):
            passed(stages=[])

    def test_unknown_fields_are_refused_everywhere(self):
        text = json.loads(json.dumps(record().model_dump(mode="json")))
        for place in ([], ["kernel"], ["outcome"], ["outcome", "stages", 0], ["git"]):
            changed = json.loads(json.dumps(text))
            inner = changed
            for step in place:
                inner = inner[step]
            inner["surprise"] = 1
            with pytest.raises(ValidationError, match="surprise"):
                records.Record.model_validate(changed)

    @pytest.mark.parametrize("bad", [math.nan, math.inf])
    def test_numbers_are_finite(self, bad):
        with pytest.raises(ValidationError, match="finite"):
            duration(bad)
        with pytest.raises(ValidationError, match="finite"):
            stage(counters={"x": bad})

    @pytest.mark.parametrize("bad", [{"median": 0.0}, {"median": -1.0}, {"samples": 0}])
    def test_times_are_positive(self, bad):
        with pytest.raises(ValidationError):
            duration(**bad)

    def test_records_cannot_be_changed(self):
        with pytest.raises(ValidationError, match="frozen"):
            record().slug = "other"


def test_the_largest_error_of_the_cases():
    def found(*errors):
        made = [records.CheckedCase(problem={}, max_relative_error=e) for e in errors]
        return correctness(cases=made).max_relative_error

    assert found(1e-3, 3e-3, 2e-3) == 3e-3
    assert found(1e-3, None) is None
    assert found(None) is None
    with pytest.raises(ValidationError):
        found()


class TestWrite:
    def test_run_time_and_commit_alone_change_nothing(self, tmp_path):
        path, _ = records.write(record(), tmp_path)
        before = path.read_bytes()
        again = record(
            run="bbbb",
            git=records.Git(commit="d" * 40, dirty=True),
            time=datetime.datetime(2027, 1, 1, tzinfo=datetime.UTC),
        )
        assert records.write(again, tmp_path) == (path, False)
        assert path.read_bytes() == before

    @pytest.mark.parametrize(
        "change",
        [
            {"outcome": passed(flops=11)},
            {"outcome": records.Failed(error="no")},
            {"toolchain": {"cuda-tile": "1.8.0"}},
            {"problem": {"b": 65}},
        ],
    )
    def test_any_fact_changes_the_file(self, tmp_path, change):
        path, _ = records.write(record(), tmp_path)
        assert records.write(record(**change), tmp_path) == (path, True)
        assert records.read(path).facts() == record(**change).facts()

    @pytest.mark.parametrize("text", ["", "{", "[]", '{"schema_version": 2}'])
    def test_an_unreadable_record_is_replaced(self, tmp_path, text):
        path, _ = records.write(record(), tmp_path)
        path.write_text(text)
        assert records.write(record(), tmp_path) == (path, True)
        assert records.read(path) == record()

    def test_a_full_disk_is_one_sentence_and_changes_nothing(self, tmp_path, monkeypatch):
        path, _ = records.write(record(), tmp_path)
        before = path.read_bytes()

        def full(*_args):
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(paths.os, "fsync", full)
        with pytest.raises(RecordError, match=f"cannot write {path}: No space left on device"):
            records.write(record(outcome=passed(flops=7)), tmp_path)
        assert path.read_bytes() == before
        assert [p.name for p in path.parent.iterdir()] == ["static.json"]

    def test_the_checkouts_results_are_the_default(self, tmp_path, monkeypatch):
        monkeypatch.setenv("HYPERMLA_ROOT", str(tmp_path))
        path, _ = records.write(record())
        assert path.is_relative_to(tmp_path / "results")
        assert list(records.find()) == [record()]


class TestRead:
    def test_a_missing_file(self, tmp_path):
        with pytest.raises(RecordError, match=r"cannot read record .*: No such file"):
            records.read(tmp_path / "x.json")

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            (lambda r: r.update(slug=7), "slug: "),
            (lambda r: r["outcome"]["stages"][0].update(flops=-1), r"outcome\..*\.0\.flops"),
            (lambda r: r["outcome"].update(status="odd"), "outcome: "),
            (lambda r: r["outcome"].pop("status"), "outcome: "),
            (lambda r: r.update(schema_version=2), "schema_version: "),
            (lambda r: r["kernel"].update(source_sha256="abc"), r"kernel\.source_sha256"),
        ],
    )  # fmt: skip
    def test_the_first_offending_field_is_named(self, tmp_path, change, said):
        path, _ = records.write(record(), tmp_path)
        content = json.loads(path.read_text())
        change(content)
        path.write_text(json.dumps(content))
        with pytest.raises(RecordError, match=f"is not a record: {said}"):
            records.read(path)

    def test_no_json(self, tmp_path):
        (tmp_path / "x.json").write_text("{")
        with pytest.raises(RecordError, match="is not a record: the file: Invalid JSON"):
            records.read(tmp_path / "x.json")


def test_find_filters_and_sorts(tmp_path):
    for version in ("v2", "v0"):
        for target, mode in (("static/sm_90", "static"), ("nvidia-h200-sxm", "event")):
            records.write(record(version=version, target=target, mode=mode), tmp_path)
    records.write(record("flash_attention"), tmp_path)

    def found(**wanted):
        return [
            (r.kernel.design, r.kernel.version, r.mode) for r in records.find(tmp_path, **wanted)
        ]

    assert len(found()) == 5
    assert found(mode="event") == [("flash_mla", "v0", "event"), ("flash_mla", "v2", "event")]
    assert found(target="static/sm_90", version="v2") == [("flash_mla", "v2", "static")]
    assert found(design="flash_attention") == [("flash_attention", "v0", "static")]
    assert found(design="none") == []
    assert list(records.find(tmp_path / "missing")) == []


class TestStale:
    def test_today_s_source_is_not_stale(self):
        assert not records.is_stale(record())

    @pytest.mark.parametrize(
        "change", [{"source_sha256": "0" * 64}, {"version": "v99"}, {"design": "gone"}]
    )
    def test_other_sources_and_lost_versions_are(self, change):
        fresh = record()
        kernel = fresh.kernel.model_copy(update=change)
        assert records.is_stale(fresh.model_copy(update={"kernel": kernel}))


class TestGitState:
    @pytest.fixture
    def repo(self, tmp_path, monkeypatch):
        monkeypatch.delenv("HYPERMLA_COMMIT", raising=False)

        def git(*args):
            identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
            subprocess.run(
                ["git", "-C", tmp_path, *identity, *args], check=True, capture_output=True
            )

        git("init", "-q")
        (tmp_path / "a").write_text("1")
        (tmp_path / "results").mkdir()
        (tmp_path / "results" / "r").write_text("1")
        git("add", "a", "results/r")
        git("commit", "-qm", "first")
        return tmp_path

    def test_a_clean_checkout(self, repo):
        state = records.git_state(repo)
        assert len(state.commit) == 40
        assert not state.dirty

    def test_changed_files_are_dirty_but_neither_new_ones_nor_results(self, repo):
        (repo / "results" / "r").write_text("2")
        (repo / "new").touch()
        assert not records.git_state(repo).dirty
        (repo / "a").write_text("2")
        assert records.git_state(repo).dirty

    def test_outside_a_repository(self, tmp_path, monkeypatch):
        monkeypatch.delenv("HYPERMLA_COMMIT", raising=False)
        monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
        assert records.git_state(tmp_path) == records.Git(commit="unknown", dirty=False)

    def test_without_git(self, tmp_path, monkeypatch):
        monkeypatch.delenv("HYPERMLA_COMMIT", raising=False)
        monkeypatch.setenv("PATH", str(tmp_path))
        assert records.git_state(tmp_path).commit == "unknown"

    def test_the_commit_may_be_carried(self, monkeypatch):
        monkeypatch.setenv("HYPERMLA_COMMIT", "abc")
        assert records.git_state() == records.Git(commit="abc", dirty=False)


def resolved(schema, root):
    while "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rsplit("/", 1)[1]]
    return schema


def conforms(value, schema, root, where="record"):
    """The part of JSON Schema that records use, checked without a library for it."""
    schema = resolved(schema, root)
    if "anyOf" in schema:
        failures = []
        for option in schema["anyOf"]:
            try:
                return conforms(value, option, root, where)
            except AssertionError as error:
                failures.append(str(error))
        raise AssertionError(f"{where}: none of {failures}")
    if "discriminator" in schema:
        mapping = schema["discriminator"]["mapping"]
        reference = mapping[value[schema["discriminator"]["propertyName"]]]
        return conforms(value, {"$ref": reference}, root, where)
    if "const" in schema:
        assert value == schema["const"], where
    if "enum" in schema:
        assert value in schema["enum"], where
    kinds = {
        "object": dict, "array": list, "string": str, "integer": int, "number": (int, float),
        "boolean": bool, "null": type(None),
    }  # fmt: skip
    if "type" in schema:
        assert isinstance(value, kinds[schema["type"]]), (
            f"{where}: {value!r} is no {schema['type']}"
        )
    if isinstance(value, dict):
        assert set(schema.get("required", ())) <= set(value), where
        known = schema.get("properties", {})
        for name, inner in value.items():
            extra = schema.get("additionalProperties", True)
            assert name in known or extra is not False, f"{where}: unknown {name}"
            deeper = known.get(name, extra)
            if isinstance(deeper, dict):
                conforms(inner, deeper, root, f"{where}.{name}")
    if isinstance(value, list):
        for i, inner in enumerate(value):
            conforms(inner, schema.get("items", {}), root, f"{where}[{i}]")
    return None


class TestJsonSchema:
    def test_committed_records_conform_and_lie_where_they_say(self):
        schema, root = records.json_schema(), repo_root() / "results"
        found = sorted(root.glob("**/*.json"))
        assert found, "no record is committed"
        for path in found:
            content = json.loads(path.read_text())
            conforms(content, schema, schema, str(path))
            assert root / records.read(path).path == path

    def test_records_of_both_kinds_conform(self):
        schema = records.json_schema()
        full = passed(
            total=duration(), predictions=[prediction()], stages=[stage(duration=duration())]
        )
        for outcome in (full, records.Failed(error="no", correctness=correctness("failed"))):
            conforms(record(outcome=outcome).model_dump(mode="json"), schema, schema)

    @pytest.mark.parametrize(
        "change", [{"slug": 1}, {"more": 1}, {"outcome": {"status": "failed"}}]
    )
    def test_others_do_not(self, change):
        schema = records.json_schema()
        with pytest.raises(AssertionError):
            conforms({**record().model_dump(mode="json"), **change}, schema, schema)

    def test_it_is_printed(self):
        done = subprocess.run(
            [sys.executable, "-m", "mla_var3.records"], capture_output=True, text=True, check=True
        )
        assert json.loads(done.stdout) == records.json_schema()
