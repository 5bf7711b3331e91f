"""Sources by their blob ids, and the commit that a run saw."""

from __future__ import annotations

import pytest

from mla_var3 import evidence
from mla_var3.blobs import blob_id
from mla_var3.errors import RecordError
from mla_var3.evidence import sources
from mla_var3.paths import kernels_dir
from tests.repository import git

from .making import SOURCE, record

NAME = f"kernels/{SOURCE.relative_to(kernels_dir())}"


def test_sources_are_named_from_the_top_of_the_checkout():
    other = SOURCE.parent / "__init__.py"
    assert list(evidence.identify([SOURCE, other])) == sorted(
        [NAME, NAME.replace("flash_mla.py", "__init__.py")]
    )
    assert evidence.identify([SOURCE])[NAME] == blob_id(SOURCE.read_bytes())


class TestStale:
    def test_todays_source_is_not_stale(self):
        assert not evidence.is_stale(record())
        assert sources.changed(record().kernel.sources) == []

    @pytest.mark.parametrize(
        "named",
        [
            {},
            {NAME: "0" * 40},
            {"kernels/cutile/mla/gone.py": "0" * 40},
            evidence.identify([SOURCE]) | {"kernels/gone.py": "0" * 40},
            {"kernels/cutile/mla": "0" * 40},
        ],
    )
    def test_other_lost_and_unnamed_sources_are(self, named):
        assert evidence.is_stale(record(kernel={"sources": named}))

    def test_what_changed_is_named(self):
        named = evidence.identify([SOURCE]) | {"kernels/gone.py": "0" * 40}
        assert sources.changed(named) == ["kernels/gone.py"]


class TestGitState:
    @pytest.fixture
    def repo(self, tmp_path, monkeypatch):
        """A checkout of its own, with kernels in it."""
        monkeypatch.delenv("HYPERMLA_COMMIT", raising=False)
        monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
        folder = tmp_path / "checkout"
        for name in ("a", "results/r", "kernels/__init__.py"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text("1")
        git(folder, "init", "-q")
        git(folder, "add", ".")
        git(folder, "commit", "-qm", "first")
        monkeypatch.setattr(sources, "repo_root", lambda: folder)
        monkeypatch.setattr(sources, "kernels_dir", lambda: folder / "kernels")
        return folder

    def test_a_clean_checkout(self, repo):
        assert evidence.git_state() == evidence.Git(
            commit=git(repo, "rev-parse", "HEAD"), dirty=False
        )

    def test_changed_files_are_dirty_but_neither_new_ones_nor_results(self, repo):
        (repo / "results" / "r").write_text("2")
        (repo / "new").touch()
        assert evidence.git_state().dirty is False
        (repo / "a").write_text("2")
        assert evidence.git_state().dirty is True

    def test_outside_a_repository(self, repo, monkeypatch):
        outside = repo.parent / "outside"
        outside.mkdir()
        monkeypatch.setattr(sources, "repo_root", lambda: outside)
        assert evidence.git_state() is None

    @pytest.mark.parametrize("tracked", [True, False])
    def test_an_unrelated_repository_says_nothing(self, repo, monkeypatch, tracked):
        """An installed package beside, or ignored inside, somebody else's checkout."""
        installed = (repo.parent if tracked else repo) / "venv" / "kernel"
        installed.mkdir(parents=True)
        (installed / "__init__.py").touch()
        monkeypatch.setattr(sources, "kernels_dir", lambda: installed)
        assert not sources.kernels_tracked()
        assert evidence.git_state() is None

    def test_a_repository_without_a_commit(self, repo, monkeypatch):
        fresh = repo.parent / "fresh"
        (fresh / "kernels").mkdir(parents=True)
        (fresh / "kernels/__init__.py").touch()
        git(fresh, "init", "-q")
        git(fresh, "add", ".")
        monkeypatch.setattr(sources, "repo_root", lambda: fresh)
        monkeypatch.setattr(sources, "kernels_dir", lambda: fresh / "kernels")
        assert evidence.git_state() is None

    def test_without_git(self, repo, monkeypatch):
        monkeypatch.setenv("PATH", str(repo))
        assert evidence.git_state() is None

    def test_the_commit_may_be_carried_and_its_changes_are_unknown(self, monkeypatch):
        monkeypatch.setenv("HYPERMLA_COMMIT", "ab" * 20)
        assert evidence.git_state() == evidence.Git(commit="ab" * 20, dirty=None)

    @pytest.mark.parametrize("carried", ["abc", "main", "AB" * 20, "ab" * 20 + "\n"])
    def test_a_carried_commit_that_is_none(self, monkeypatch, carried):
        monkeypatch.setenv("HYPERMLA_COMMIT", carried)
        with pytest.raises(RecordError, match="is not the 40 hex digits of a commit"):
            evidence.git_state()
