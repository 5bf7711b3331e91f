"""Contributed runs: one file, checked as all records are, marked, and what a device lacks."""

from __future__ import annotations

import json
import types

import pytest

from mla_var3 import evidence
from mla_var3.app import contribute as command
from mla_var3.campaign import contributing
from mla_var3.campaign.contributing import About, Contribution
from mla_var3.errors import HyperMlaError, InputError, ToolchainError, UsageError
from mla_var3.evidence import Git
from mla_var3.paths import results_dir
from mla_var3.profiling import rounds
from tests.fake_gpu import play_gpu


def committed():
    """A committed run file of the newest timed runs that has no fault."""
    paths = sorted((results_dir() / "nvidia-h200-sxm").rglob("*.json"), reverse=True)
    for path in sorted(paths, key=lambda path: path.stem, reverse=True):
        run = evidence.read(path)
        clean = run.git is not None and not run.git.dirty
        if clean and not command.judge(run, run.folder / f"{run.stem}.json"):
            return run
    raise AssertionError


@pytest.fixture(scope="module")
def run():
    return committed()


@pytest.fixture
def file(run, tmp_path):
    about = About(run=run.run, device=run.target, name="NVIDIA H200", driver="580", by="A. Person",
                  time=run.entries[0].time, seconds=400)  # fmt: skip
    made = Contribution(about=about, files=(json.loads(run.text()),))
    path = tmp_path / "mine.json"
    path.write_text(contributing.text(made))
    return path


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setattr(contributing, "results_dir", lambda: tmp_path / "results")
    return tmp_path / "results"


def changed(file, change):
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


def test_an_accepted_run_lies_among_the_records_and_is_marked(file, root, run, capsys):
    assert command.main([str(file)]) == 0
    (placed,) = evidence.files(root)
    assert placed.relative_to(root).as_posix() == f"{run.folder}/{run.stem}.json"
    assert placed.read_text() == run.text()
    assert contributing.contributed(root)[run.run].by == "A. Person"
    assert "contributions" in capsys.readouterr().out
    with pytest.raises(UsageError, match="was contributed already"):
        command.main([str(file)])


def without_hash(content):
    content["files"][0]["entries"][0]["outcome"]["total"]["median_us"] = 1e-3


FAULTS = [
    (lambda c: c.pop("about"), "about: Field required"),
    (lambda c: c.update(files=[]), "files"),
    (lambda c: c.update(extra=1), "extra"),
    (lambda c: c["about"].update(run="A-1"), "about.run"),
    (lambda c: c["about"].update(run="abc"), "files.0 is of run"),
    (lambda c: c["about"].update(device="nvidia-b200"), "files.0 is of run"),
    (lambda c: c["about"].update(seconds=-1), "about.seconds"),
    (lambda c: c["about"].update(by="<b>"), "about.by"),
    (lambda c: c["files"][0].pop("entries"), "files.0"),
    (lambda c: c["files"][0].update(schema_version=9), "files.0 has schema version 9"),
    (lambda c: c["files"][0].update(content_sha256="0" * 64), "files.0: "),
    (lambda c: c["files"][0]["git"].update(dirty=True), "files.0.git: it names no clean commit"),
    (lambda c: c["files"][0].pop("git"), "files.0.git: it names no clean commit"),
    (without_hash, "files.0"),
]


@pytest.mark.parametrize(("change", "said"), FAULTS)
def test_a_fault_is_one_sentence_with_file_and_field(file, root, change, said):
    changed(file, change)
    with pytest.raises(HyperMlaError) as raised:
        command.main([str(file)])
    assert "mine.json" in str(raised.value)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)
    assert not root.exists()


def test_a_contribution_is_made_in_one_run(run, monkeypatch, tmp_path, capsys):
    play_gpu(monkeypatch)
    record = run.records[0]
    mine = record.model_copy(update={"run": contributing_run(), "target": "nvidia-h200-sxm"})
    monkeypatch.setattr(contributing, "timed", lambda problem, say: (
        [mine] if problem == contributing.standard().problems[0] else [], [f"{problem}: no"],
    ))  # fmt: skip
    monkeypatch.setattr(evidence, "git_state", lambda: Git(commit="0" * 40, dirty=False))
    monkeypatch.setattr(command, "out_dir", lambda: tmp_path / "out")
    assert command.main(["--by=A. Person"]) == 0
    said = capsys.readouterr().out
    assert "nox -s contribute -- " in said
    (path,) = (tmp_path / "out/contributions").glob("nvidia-h200-sxm-*.json")
    found = contributing.read(path)
    assert found.about.by == "A. Person"
    assert len(found.about.left_out) == len(contributing.standard().problems)
    assert [r.key for one in found.runs() for r in one.records] == [mine.key]


def contributing_run():
    from mla_var3.profiling import recording

    return recording.RUN


def test_it_ends_within_the_budget(run, monkeypatch):
    play_gpu(monkeypatch)
    clock = iter(range(0, 100_000, 300))
    monkeypatch.setattr(contributing.time, "monotonic", lambda: float(next(clock)))
    monkeypatch.setattr(evidence, "git_state", lambda: Git(commit="0" * 40, dirty=False))
    mine = run.records[0].model_copy(update={"run": contributing_run()})
    begun = []
    monkeypatch.setattr(contributing, "timed", lambda p, say: (begun.append(p) or [mine], []))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contributing, "files_of", lambda records: [json.loads(run.text())])
        patch.setattr(contributing, "About", lambda **k: About(**{**k, "run": run.run}))
        found = contributing.measure("", lambda _: None)
    assert len(begun) == 1
    assert sum("the budget was spent" in text for text in found.about.left_out) == 3


@pytest.mark.parametrize("git", [None, Git(commit="0" * 40, dirty=True)])
def test_sources_of_no_commit_are_refused(monkeypatch, git):
    play_gpu(monkeypatch)
    monkeypatch.setattr(evidence, "git_state", lambda: git)
    with pytest.raises(UsageError, match="a contributed run names the commit"):
        command.main([])


def test_without_a_gpu_it_says_so():
    with pytest.raises(ToolchainError, match="contribute times a standard set on a GPU"):
        command.main([])


def test_versions_are_timed_in_rounds_and_others_say_why(run, monkeypatch):
    jobs = []

    def timed(found, settings):
        jobs.extend(found)
        entry = types.SimpleNamespace(job=found[0], absent="not installed")
        return [(entry, None), (entry, run.records[0])]

    monkeypatch.setattr(rounds, "timed", timed)
    problem = contributing.standard().problems[0]
    made, absent = contributing.timed(problem, lambda _: None)
    assert made == [run.records[0]]
    assert absent[-1].endswith("not installed")
    assert {job.version.layer for job in jobs} == {"mla"}
    assert len({job.version.design_key for job in jobs}) == len(jobs)


def test_a_device_wants_what_nobody_timed_on_it():
    records = list(evidence.find(mode="event", target="nvidia-h200-sxm"))
    all_ = list(contributing.standard().problems)
    assert contributing.wanted("nvidia-b200", records) == all_
    assert len(contributing.wanted("nvidia-h200-sxm", records)) < len(all_)


def test_the_standard_set_is_of_problems_that_versions_take():
    for problem in contributing.standard().problems:
        versions = contributing.newest(problem.layer)
        assert versions
        taken = 0
        for version in versions:
            try:
                version.plan_of(problem.fields).validate()
                taken += 1
            except HyperMlaError:
                continue
        assert taken >= 2
    assert contributing.standard().budget_s <= 600


def test_a_table_that_is_not_sound_is_named(root):
    (root / "contributions").mkdir(parents=True)
    (root / "contributions/x.json").write_text("{}")
    with pytest.raises(InputError, match=r"contributions/x.json: run"):
        contributing.contributed(root)
