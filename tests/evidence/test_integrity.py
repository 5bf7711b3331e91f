"""Forgeries: each that once passed every check is caught, by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mla_var3 import evidence
from mla_var3.errors import RecordError
from mla_var3.evidence import integrity, sources
from tests.repository import git

from .making import (
    content,
    correctness,
    facts,
    passed,
    place_of,
    put,
    record,
    stage,
    timed,
    timed_record,
)


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A repository that holds the kernels that its records name."""
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    folder = tmp_path / "checkout"
    kernels = folder / "kernels"
    kernels.mkdir(parents=True)
    for name in ("__init__.py", "k.py"):
        (kernels / name).write_text(f"# {name}\n")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    monkeypatch.setattr(sources, "repo_root", lambda: folder)
    monkeypatch.setattr(sources, "kernels_dir", lambda: kernels)
    integrity._objects.cache_clear()
    yield folder
    integrity._objects.cache_clear()


@pytest.fixture
def make(checkout):
    """A sound record: timed on an H200, its sources and commit in the repository."""
    commit = git(checkout, "rev-parse", "HEAD")

    def made(kind=timed_record, **changes):
        named = evidence.identify([checkout / "kernels/k.py"])
        fields = {"kernel": {"sources": named}, "git": evidence.Git(commit=commit, dirty=False)}
        return kind(**{**fields, **changes})

    return made


def faults(made, place=None):
    """Faults of a file that holds one record, and of the record."""
    said = made if isinstance(made, dict) else content(made)
    read = evidence.parse(json.dumps(said).encode(), "x.json")
    place = place or Path(read.folder) / f"{read.stem}.json"
    return [*integrity.file_faults(read, place), *integrity.faults(*read.records)]


def test_a_sound_record_has_no_fault(make):
    assert faults(make()) == []
    assert faults(make(record)) == []
    assert faults(make(record, outcome=evidence.Failed(error="no"))) == []
    assert faults(make(record, outcome=passed(), target="cpu", mode="disabled")) == []
    assert faults(make(git=None)) == []


class TestForgeries:
    def test_a_median_below_its_minimum(self, make, tmp_path):
        said = content(make())
        said["entries"][0]["outcome"]["total"]["median_us"] = 1.0
        path = put(tmp_path, said, place_of(make()))
        with pytest.raises(RecordError, match=r"outcome\.passed\.total: .*min 9.0 <= median 1.0"):
            evidence.read(path)

    def test_a_share_of_the_roofline(self, make, tmp_path):
        said = content(make())
        said["entries"][0]["outcome"]["roofline_fraction"] = 7.5
        path = put(tmp_path, said, place_of(make()))
        with pytest.raises(RecordError, match=r"outcome\.passed\.roofline_fraction: Extra"):
            evidence.read(path)

    def test_a_record_of_one_device_in_the_folder_of_another(self, make):
        made = make()
        belongs = place_of(made)
        said = [f"it says that it belongs to {belongs.as_posix()}"]
        assert faults(made, Path("nvidia-b200", *belongs.parts[1:])) == said
        assert faults(made, belongs.with_name("other.json")) == said
        assert faults(made, belongs.with_name(f"{belongs.stem}-2.json")) == []

    def test_and_with_its_target_edited_and_sealed_again(self, make):
        moved = make().model_copy(update={"target": "nvidia-b200"})
        assert faults(moved) == ["it was run on nvidia-h200-sxm and lies under nvidia-b200"]

    def test_a_made_up_commit(self, make):
        forged = make(git=evidence.Git(commit="d" * 40, dirty=False))
        assert faults(forged) == [f"commit {'d' * 12} is not in the repository"]

    def test_a_blob_for_a_commit(self, make):
        (blob,) = make().kernel.sources.values()
        forged = make(git=evidence.Git(commit=blob, dirty=False))
        assert faults(forged) == [f"commit {blob[:12]} is not in the repository"]

    def test_made_up_sources(self, make):
        forged = make(kernel={"sources": {"kernels/k.py": "e" * 40}})
        assert faults(forged) == [
            f"source kernels/k.py ({'e' * 12}) is not in the repository's history"
        ]

    def test_a_commit_for_a_source(self, make):
        forged = make(kernel={"sources": {"kernels/k.py": make().git.commit}})
        assert any("is not in the repository's history" in fault for fault in faults(forged))

    def test_no_sources(self, make):
        assert faults(make(kernel={"sources": {}})) == ["it names no sources"]

    @pytest.mark.parametrize("us", [1.0, 9.5])
    def test_an_edited_time(self, make, us):
        said = content(make())
        said["entries"][0]["outcome"]["total"] |= {"median_us": us, "min_us": us}
        (fault,) = faults(said)
        assert "it was edited after it was written" in fault

    def test_a_field_of_the_static_facts_deleted(self, make):
        said = content(make(record))
        del said["facts"][0]["spill_loads"]
        (fault,) = faults(said)
        assert "it was edited after it was written" in fault

    @pytest.mark.parametrize("name", ["kernel", "arch", "language"])
    def test_a_field_that_facts_cannot_lack_deleted(self, make, name):
        said = content(make(record))
        del said["facts"][0][name]
        with pytest.raises(RecordError, match=r"facts\.0"):
            evidence.parse(json.dumps(said).encode(), "x.json")

    #: What no compile told is None: an error, waits and rings.
    TOLD = sorted(name for name, value in facts().model_dump().items() if value is not None)

    @pytest.mark.parametrize("name", TOLD)
    def test_a_field_of_the_static_facts_null(self, make, name):
        said = content(make(record))
        said["facts"][0][name] = None
        with pytest.raises(RecordError, match=r"facts\.0"):
            evidence.parse(json.dumps(said).encode(), "x.json")

    @pytest.mark.parametrize("missing", ["instructions", "threads_per_block"])
    def test_facts_without_what_every_kernel_has(self, make, missing):
        outcome = passed(stages=[stage(static=facts(**{missing: 0}))])
        assert faults(make(record, outcome=outcome)) == [
            "stage attention has static facts without instructions or threads"
        ]

    def test_facts_of_another_arch(self, make):
        outcome = passed(stages=[stage(static=facts(arch="sm_100"))])
        assert faults(make(record, outcome=outcome)) == [
            "stage attention was compiled for sm_100, not for sm_90"
        ]
        exact = passed(stages=[stage(static=facts(arch="sm_90a"))])
        assert faults(make(record, outcome=exact)) == []

    def test_no_hash(self, make):
        said = content(make())
        del said["content_sha256"]
        (fault,) = faults(said)
        assert fault.startswith("it has no content_sha256")

    def test_a_success_whose_check_failed(self, make):
        assert faults(make(outcome=timed(correctness=correctness("failed")))) == [
            "it passed, and its check failed"
        ]

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"device": None}, "it lies under device nvidia-h200-sxm and names no device"),
            ({"target": "cpu"}, "target cpu has no device"),
            ({"target": "static/sm_90"}, "target static/sm_90 has no device"),
            ({"outcome": passed()}, "mode event states no time of the whole"),
            ({"mode": "disabled"}, "mode disabled takes no times, and the record states one"),
            ({"mode": "static"}, "mode static and target nvidia-h200-sxm do not go together"),
        ],
    )
    def test_target_mode_device_and_times_go_together(self, make, changes, said):
        assert any(fault.startswith(said) for fault in faults(make(**changes)))

    @pytest.mark.parametrize("mode", ["event", "annotation", "ncu", "nsys"])
    def test_times_need_a_device(self, make, mode):
        forged = make(device=None, target="cpu", mode=mode)
        assert f"mode {mode} needs a device, and the record names none" in faults(forged)


def test_every_fault_of_a_record_is_named_at_once(make):
    said = content(make(git=evidence.Git(commit="d" * 40, dirty=False)))
    said["entries"][0]["slug"] = "other"
    assert len(faults(said, Path("x.json"))) == 3


class TestWithoutTheHistory:
    """What cannot be looked up is not called missing."""

    def forged(self, make):
        return make(
            kernel={"sources": {"kernels/k.py": "e" * 40}},
            git=evidence.Git(commit="d" * 40, dirty=None),
        )

    def test_in_an_unrelated_repository(self, make, monkeypatch, tmp_path):
        made = self.forged(make)
        monkeypatch.setattr(sources, "kernels_dir", lambda: tmp_path / "installed")
        assert not integrity.repository_known()
        assert faults(made) == []

    def test_without_git(self, make, monkeypatch, tmp_path):
        made = self.forged(make)
        monkeypatch.setenv("PATH", str(tmp_path))
        assert not integrity.repository_known()
        assert faults(made) == []

    def test_in_a_shallow_clone(self, make, checkout, monkeypatch, tmp_path):
        made = self.forged(make)
        (checkout / "a").touch()
        git(checkout, "add", "a")
        git(checkout, "commit", "-qm", "second")
        shallow = tmp_path / "shallow"
        git(tmp_path, "clone", "-q", "--depth=1", checkout.as_uri(), str(shallow))
        monkeypatch.setattr(sources, "repo_root", lambda: shallow)
        monkeypatch.setattr(sources, "kernels_dir", lambda: shallow / "kernels")
        assert not integrity.repository_known()
        assert faults(made) == []


@pytest.mark.slow
def test_committed_records_are_sound():
    root = evidence.store.results_dir()
    found = {
        path: [
            *integrity.file_faults(evidence.read(path), path.relative_to(root)),
            *(fault for record in evidence.records_of(path) for fault in integrity.faults(record)),
        ]
        for path in evidence.files()
    }
    assert found, "no record is committed"
    assert {str(path): wrong for path, wrong in found.items() if wrong} == {}
