"""The records commands, and every forgery by name."""

from __future__ import annotations

import json
import os

import pytest
from factories import correctness, costs_as, duration, passed, record, stage, static_facts

from mla_var3 import evidence
from mla_var3.app import records as commands
from mla_var3.app import refuting, verify
from mla_var3.errors import RecordError, UnknownNameError
from mla_var3.evidence import integrity, sources
from mla_var3.paths import kernels_dir, results_dir, write_atomic
from mla_var3.runtime import registry
from tests.repository import git

#: What the committed workloads give on their check problems.
TABLE = results_dir() / "fingerprints/workloads.json"
TIMED = {"target": "nvidia-h200-sxm", "mode": "event"}


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    """The kernels' own repository, of which flash_mla and its tables are there, and no records."""
    monkeypatch.setenv("HYPERMLA_ROOT", str(tmp_path))
    kernels = tmp_path / "kernels"
    monkeypatch.setattr(sources, "kernels_dir", lambda: kernels)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    fingerprints = tmp_path / "results/fingerprints"
    write_atomic(fingerprints / TABLE.name, TABLE.read_bytes())
    codes = json.loads((TABLE.parent / "cutile/mla/flash_mla.json").read_text())
    for version in codes["versions"].values():
        # Records here are of today's code, whatever was declared to have changed since their time.
        newest = version["builds"][0]
        version["builds"] = [{name: newest[name] for name in ("sources", "compiled")}]
    write_atomic(fingerprints / "cutile/mla/flash_mla.json", json.dumps(codes).encode())
    # Stages of the records here are made up; tests/app/test_refuting.py holds those of real ones.
    monkeypatch.setattr(refuting, "unlike_the_launch", lambda *_: ())
    git(tmp_path, "init", "-q")
    files = {file for v in registry.designs()["flash_mla"] for file in v.source_files()}
    for file in sorted({kernels_dir() / "__init__.py", *files}):
        copy = kernels / file.relative_to(kernels_dir())
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(file.read_bytes())
    git(tmp_path, "add", "kernels")
    git(tmp_path, "commit", "-q", "-m", "x")
    integrity._objects.cache_clear()
    yield tmp_path
    integrity._objects.cache_clear()


@pytest.fixture
def commit(root) -> str:
    return git(root, "rev-parse", "HEAD")


@pytest.fixture
def sound(commit):
    """Writes a record that nothing speaks against."""

    plan = registry.find("flash_mla", "v0").plan_class()(b=1, s=1)

    def write(**changes):
        fields = {"git": evidence.Git(commit=commit, dirty=False), "outcome": passed(), **changes}
        made = record(**{"problem": plan.problem(), "slug": plan.slug(), **fields})
        checked = plan.shrunk() if made.is_static else plan
        return evidence.write(of_problem(made, checked.problem()))[0]

    return write


def of_problem(made: evidence.Record, problem) -> evidence.Record:
    """The record with its check of a problem, where it has one and the test named no other."""
    result = made.outcome
    if getattr(result, "correctness", None) is None:
        return made
    cases = [
        case.model_copy(update={"problem": problem}) if case.problem == {"b": 1} else case
        for case in result.correctness.cases
    ]
    checked = result.correctness.model_copy(update={"cases": cases})
    return made.model_copy(update={"outcome": result.model_copy(update={"correctness": checked})})


def timed(median: float = 1000.0) -> evidence.Passed:
    stages = [stage(name, duration=duration(median)) for name in ("a", "b")]
    return passed(total=duration(median), stages=stages)


def outcome(content):
    return content["entries"][0]["outcome"]


def edit(path, change, *, seal=False):
    """Change a record's file by hand; ``seal`` gives it the hash of what is then read."""
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    if seal:
        content["content_sha256"] = evidence.read(path).digest()
        path.write_text(json.dumps(content))


def faults(capsys) -> list[str]:
    code = commands.main(["verify"])
    lines = [x for x in capsys.readouterr().out.splitlines() if x.startswith("FAULT ")]
    assert code == (1 if lines else 0)
    return lines


def test_sound_records_have_no_fault(sound, capsys):
    sound(outcome=passed(stages=[stage(static=static_facts())]))
    sound(outcome=timed(), **TIMED)
    sound(target="cpu", mode="disabled")
    assert faults(capsys) == []


def test_the_commit_of_an_unrelated_repository_is_no_provenance(commit, sound, capsys, monkeypatch):
    """As around an installed wheel: the kernels are not tracked by the repository here."""
    assert evidence.git_state() == evidence.Git(commit=commit, dirty=False)
    monkeypatch.setattr(sources, "kernels_dir", kernels_dir)
    assert evidence.git_state() is None
    sound(git=evidence.Git(commit="d" * 40, dirty=None))
    integrity._objects.cache_clear()
    assert commands.main(["verify"]) == 0
    assert "not verified: no git history" in capsys.readouterr().out


class TestForgeries:
    def test_a_median_below_its_minimum(self, sound, capsys):
        path = sound(outcome=timed(), **TIMED)
        edit(path, lambda r: outcome(r)["total"].update(median_us=10.0))
        (fault,) = faults(capsys)
        assert "min 900.0 <= median 10.0 <= max 1200.0 does not hold" in fault

    def test_a_share_of_the_roofline_of_its_own(self, sound, capsys):
        path = sound(outcome=timed(), **TIMED)
        edit(path, lambda r: outcome(r).update(roofline_fraction=7.5))
        (fault,) = faults(capsys)
        assert "roofline_fraction: Extra inputs are not permitted" in fault

    def test_records_copied_to_another_devices_folder(self, sound, root, capsys):
        sound(outcome=timed(), **TIMED)
        results = root / "results"
        (results / "nvidia-h200-sxm").rename(results / "nvidia-b200")
        (fault,) = faults(capsys)
        assert "it says that it belongs to nvidia-h200-sxm/" in fault

    def test_and_given_that_devices_target(self, sound, root, capsys):
        path = sound(outcome=timed(), **TIMED)
        edit(path, lambda r: r.update(target="nvidia-b200"), seal=True)
        results = root / "results"
        (results / "nvidia-h200-sxm").rename(results / "nvidia-b200")
        (fault,) = faults(capsys)
        assert "it was run on nvidia-h200-sxm and lies under nvidia-b200" in fault

    @pytest.mark.parametrize("key", ["nvidia-h100-sxm", "nvidia-b200", "amd-mi300x"])
    def test_and_given_that_device_whole(self, sound, root, capsys, key):
        path = sound(outcome=timed(), **TIMED)
        edit(path, lambda r: (r.update(target=key), r["device"].update(key=key)), seal=True)
        (root / "results/nvidia-h200-sxm").rename(root / "results" / key)
        found = faults(capsys)
        assert any(f"a NVIDIA H200 ran it, and {key} is not the file" in x for x in found)

    def test_an_arch_that_the_device_does_not_have(self, sound, capsys):
        path = sound(outcome=timed(), **TIMED)
        edit(path, lambda r: r["device"].update(arch="sm_100"), seal=True)
        (fault,) = faults(capsys)
        assert "it ran on sm_100, and nvidia-h200-sxm is sm_90" in fault

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ({"problem": {"t": 1000000}}, "its problem is b1-h128-s1-t1000000-p64-k512-bf16, and"),
            ({"problem": {"heads": 3}}, "flash_mla v0 does not take its problem: "),
            ({"layer": "gemm"}, "flash_mla v0 is of mla in cutile"),
            ({"version": "v99"}, "unknown version of flash_mla 'v99'"),
            ({"design": "nope"}, "unknown design 'nope"),
            ({"time": "2099-01-01T00:00:00Z"}, "which is yet to come"),
        ],
    )
    def test_what_the_version_or_the_clock_says_otherwise(self, sound, root, capsys, change, said):
        path = sound(outcome=timed(), **TIMED)

        def forge(content):
            (entry,) = content["entries"]
            for key, value in change.items():
                there = content if key in content else entry
                there[key] = {**there[key], **value} if isinstance(value, dict) else value
            content["versions"] = {entry["version"]: content["versions"]["v0"]}

        edit(path, forge, seal=True)
        run = evidence.read(path)
        there = root / "results" / run.folder / f"{run.stem}.json"
        there.parent.mkdir(parents=True, exist_ok=True)
        path.rename(there)
        assert any(said in x for x in faults(capsys))

    def test_an_error_above_its_tolerance(self, sound, capsys):
        path = sound(outcome=timed(), **TIMED)

        def forge(content):
            outcome(content)["correctness"]["cases"][0]["max_relative_error"] = 5.0

        edit(path, forge, seal=True)
        (fault,) = faults(capsys)
        assert "it passed with an error of 5, above its tolerance" in fault

    def test_another_files_blob(self, sound, capsys):
        path = sound(outcome=timed(), **TIMED)

        def forge(content):
            named = content["versions"]["v0"]
            first, second, *_ = named
            named[first] = named[second]

        edit(path, forge, seal=True)
        (fault,) = faults(capsys)
        assert "of commit" in fault

    def test_a_commit_that_was_made_up(self, sound, capsys):
        sound(git=evidence.Git(commit="d" * 40, dirty=False))
        (fault,) = faults(capsys)
        assert "commit dddddddddddd is not in the repository" in fault

    def test_a_source_that_was_made_up(self, sound, capsys):
        version = registry.find("flash_mla", "v0")
        (name,) = (name for name in version.sources() if name.endswith(version.path.name))
        kernel = record().kernel.model_copy(update={"sources": {name: "e" * 40}})
        sound(kernel=kernel)
        (fault,) = faults(capsys)
        assert f"source {name} (eeeeeeeeeeee) is not in the repository's history" in fault

    def test_a_time_of_1_us(self, sound, capsys, monkeypatch):
        costs_as(monkeypatch)
        sound(outcome=timed(1.0), **TIMED)
        lines = faults(capsys)
        assert len(lines) == 3
        for place, line in zip(("the whole", "stage a", "stage b"), lines, strict=True):
            assert f"{place} took 0.9 us, below the physical bound on nvidia-h200-sxm: max(" in line

    @pytest.mark.parametrize("seal", [False, True])
    def test_a_static_fact_deleted(self, seal, sound, capsys):
        path = sound(outcome=passed(stages=[stage(static=static_facts())]))
        edit(path, lambda r: r["facts"][0].pop("registers"), seal=seal)
        lines = faults(capsys)
        assert any("facts.0.registers is not as this tool writes" in x for x in lines)
        assert any("content differs from its content_sha256" in x for x in lines) is not seal

    def test_a_static_fact_that_is_null(self, sound, capsys):
        path = sound(outcome=passed(stages=[stage(static=static_facts())]))
        edit(path, lambda r: r["facts"][0].update(registers=None))
        (fault,) = faults(capsys)
        assert "registers: Input should be a valid integer" in fault

    def test_a_number_changed(self, sound, capsys):
        path = sound(outcome=timed(), **TIMED)
        edit(path, lambda r: outcome(r)["total"].update(samples=49))
        assert any("it was edited after it was written" in line for line in faults(capsys))


class TestFaults:
    def test_a_device_without_a_file(self, sound, capsys):
        state = evidence.Device(key="nvidia-x1", name="X1", arch="sm_90", driver="1")
        sound(outcome=timed(), target="nvidia-x1", mode="event", device=state)
        assert "device nvidia-x1 has no file in knowledge/devices" in "".join(faults(capsys))

    def test_an_unknown_language_and_no_toolchain(self, sound, capsys):
        kernel = record().kernel.model_copy(update={"language": "toy-dsl", "package": "toy"})
        sound(kernel=kernel, toolchain={})
        lines = "".join(faults(capsys))
        assert "language toy-dsl does not exist" in lines
        assert "it names no tool of the toolchain" in lines

    def test_a_file_that_is_no_record(self, root, sound, capsys):
        sound().write_text("{")
        (fault,) = faults(capsys)
        assert "holds no records" in fault

    def test_a_failed_run_has_no_times_to_doubt(self, sound, capsys):
        failed = evidence.Failed(error="x", correctness=correctness("failed"))
        sound(outcome=failed)
        sound(outcome=evidence.Skipped(reason="x"), target="static/sm_100", toolchain={})
        assert faults(capsys) == []


class TestContradictions:
    """What no run can have observed; ``sound`` writes each twin that nothing speaks against."""

    def test_a_tolerance_that_the_workload_does_not_give(self, sound, capsys):
        refuting._outputs.cache_clear()
        sound()
        assert faults(capsys) == []
        sound(version="v1", outcome=passed(correctness=correctness(tolerance=0.5)))
        (fault,) = faults(capsys)
        assert "its tolerance is 0.5, and its workload gives 0.002, 0.004" in fault
        refuting._outputs.cache_clear()

    def test_a_small_check_of_another_problem(self, sound, capsys):
        other = registry.find("flash_mla", "v0").plan_class()(b=2, s=2).shrunk().problem()
        cases = [evidence.CheckedCase(problem={**other, "t": 99}, max_relative_error=1e-3)]
        sound(outcome=passed(correctness=correctness(cases=cases)))
        (fault,) = faults(capsys)
        assert "its check is not of b1-h16-s1-t200-p64-k512-bf16, its problem made small" in fault

    @pytest.mark.parametrize(
        ("facts", "said"),
        [
            ({"registers": 256, "threads_per_block": 128},
             "256 registers per thread, and sm_90 at most 255"),
            ({"shared_bytes": 232449},
             "232449 bytes of shared memory per block, and sm_90 at most 232448"),
            ({"threads_per_block": 1056, "registers": 32}, "1056 threads per block"),
            ({"registers": 255, "threads_per_block": 384}, "97920 registers per block"),
        ],
    )  # fmt: skip
    def test_what_a_block_of_the_arch_cannot_have(self, sound, capsys, facts, said):
        sound(outcome=passed(stages=[stage(static=static_facts(**facts))]))
        assert any(said in fault for fault in faults(capsys))

    def test_what_it_just_can_have(self, sound, capsys):
        facts = static_facts(registers=168, threads_per_block=384, shared_bytes=232448)
        sound(outcome=passed(stages=[stage(static=facts)]))
        assert faults(capsys) == []

    def test_a_time_without_a_check(self, sound, capsys):
        sound(outcome=timed().model_copy(update={"correctness": None}), **TIMED)
        (fault,) = faults(capsys)
        assert "mode event times nothing unchecked" in fault

    def test_a_key_twice_in_one_run(self, sound, capsys):
        path = sound(outcome=timed(), **TIMED)
        (path.parent / f"{path.stem}-2.json").write_bytes(path.read_bytes())
        assert any("another file of its run states the same" in fault for fault in faults(capsys))
        edit(path, lambda r: r["entries"].append(r["entries"][0]))
        assert any("event stands in it twice" in fault for fault in faults(capsys))


def test_records_of_changed_code_are_listed_with_the_reason_and_are_no_fault(
    sound, capsys, monkeypatch
):
    path = sound()
    state = evidence.State("code changed", ("grid of attention 132 -> 128",))
    monkeypatch.setattr(verify.evidence, "state_of", lambda _: state)
    assert commands.main(["verify"]) == 0
    out = capsys.readouterr().out
    (made,) = evidence.records_of(path)
    assert f"{evidence.address(made)}@aaaa code changed: grid of attention 132 -> 128\n" in out
    assert (
        "1 records, 0 of them measured again since: 0 with faults, 1 of changed code, 0 of" in out
    )
    assert path.is_file()


def test_what_killed_runs_left_is_swept(sound, capsys):
    left = sound().parent / ".event.json.a1b2c3d4"
    left.touch()
    os.utime(left, (0, 0))
    assert commands.main(["verify"]) == 0
    assert f"swept {left.as_posix()}" in capsys.readouterr().out
    assert not left.exists()


def test_without_history_it_says_what_was_not_verified(root, sound, capsys):
    sound(git=evidence.Git(commit="d" * 40, dirty=None))
    (root / ".git").rename(root / "no-git")
    integrity._objects.cache_clear()
    assert commands.main(["verify"]) == 0
    assert "not verified: no git history" in capsys.readouterr().out


@pytest.mark.slow
def test_the_committed_times_stay_above_the_bounds(monkeypatch):
    monkeypatch.delenv("HYPERMLA_ROOT")
    found = {
        evidence.address(made): fault
        for made in evidence.find()
        for fault in verify.below_the_bound(made)
    }
    assert found == {}


@pytest.mark.parametrize(
    ("ours", "theirs", "where"),
    [({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}, "a.1.b"), ({"a": 1}, {}, "a"),
     ({}, {"z": 1}, "z"), ({"a": [1]}, {"a": [1, 2]}, "a"), ({"a": 1}, {"a": 1}, None),
     ({"content_sha256": "x"}, {"content_sha256": "y"}, None)],
)  # fmt: skip
def test_the_first_difference_is_named(ours, theirs, where):
    assert verify.difference(ours, theirs) == where


class TestList:
    def test_a_line_per_record(self, sound, capsys):
        sound(outcome=timed(), **TIMED)
        sound(version="v1")
        assert commands.main(["list"]) == 0
        first, second, count = capsys.readouterr().out.splitlines()
        assert first.split() == [
            "passed", "1000.0", "us", "results/nvidia-h200-sxm/cutile/mla/flash_mla/v0/"
            "b1-h128-s1-t4096-p64-k512-bf16/event@aaaa",
        ]  # fmt: skip
        assert second.split()[:1] == ["passed"]
        assert count == "2 records"

    def test_only_those_asked_for(self, sound, capsys):
        sound(outcome=timed(), **TIMED)
        sound(version="v1")
        assert commands.main(["list", "--version=v1", "--target=static/sm_90"]) == 0
        assert capsys.readouterr().out.endswith("\n1 records\n")

    @pytest.mark.parametrize("flag", ["--mode=foo", "--design=nope", "--target=nowhere"])
    def test_a_value_that_no_record_has(self, sound, flag):
        sound(outcome=timed(), **TIMED)
        with pytest.raises(UnknownNameError, match=flag.partition("=")[2]):
            commands.main(["list", flag])


class TestShow:
    def test_as_a_report(self, sound, root, capsys):
        path = sound(outcome=timed(), **TIMED)
        (made,) = evidence.records_of(path)
        names = path, path.relative_to(root / "results"), evidence.address(made), made.key
        for name in names:
            assert commands.main(["show", str(name)]) == 0
            assert "flash_mla v0" in capsys.readouterr().out

    def test_a_missing_one(self):
        with pytest.raises(RecordError, match=r"results/x\.json: no such file"):
            commands.main(["show", "x.json"])


def test_the_schema_is_json(capsys):
    assert commands.main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out) == evidence.json_schema()


def test_unknown_commands_are_refused():
    with pytest.raises(UnknownNameError, match="known: verify, list, show, migrate, schema"):
        commands.main(["verfy"])
