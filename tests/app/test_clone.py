"""Clones of a fixture design and of the project's own versions."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import mla_var3.campaign.cloning as module
from mla_var3.app.clone import main
from mla_var3.campaign.cloning import add_entry, clone
from mla_var3.errors import CloneError, UnknownNameError, UsageError
from mla_var3.knowledge.schema import DEVLOG_SECTIONS
from mla_var3.paths import kernels_dir
from mla_var3.runtime import registry, unreached

SOURCE = '"""Toy v1: like v0, but twice."""\n\nfrom .stage import attention\n'
DEVLOG = """---
title: toy
evidence: []
---

### v0: one block

Text.

### v9: later

Text.
"""


def tree(root: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A kernels folder with a base version, and a v1 of two modules."""
    kernels = tmp_path / "kernels"
    design = kernels / "cutile/mla/toy"
    files = {
        "toy/__init__.py": '"""The base."""\n',
        "toy/toy.py": '"""Toy, base."""\n',
        "toy_v1/__init__.py": '"""v1: twice."""\n',
        "toy_v1/toy_v1.py": SOURCE,
        "toy_v1/stage.py": "attention = 1\n",
        "toy_v1/__pycache__/stage.pyc": "left",
        "devlog.md": DEVLOG,
    }
    for path, text in files.items():
        (design / path).parent.mkdir(parents=True, exist_ok=True)
        (design / path).write_text(text)
    (kernels / "cutile/__init__.py").write_text('LANGUAGE = "cutile-dsl"\n')
    monkeypatch.setattr(registry, "kernels_dir", lambda: kernels)
    monkeypatch.chdir(tmp_path)
    registry.clear_caches()
    yield kernels
    registry.clear_caches()


class TestClone:
    def test_it_is_a_copy_whose_module_is_called_after_it(self, root: Path) -> None:
        design = root / "cutile/mla/toy"
        old = tree(design)
        assert clone(registry.find("toy", "v1"), "v5") == [design / "toy_v5", design / "devlog.md"]
        new = tree(design)
        assert {name: new[name] for name in old if name != "devlog.md"} == {
            name: text for name, text in old.items() if name != "devlog.md"
        }
        assert tree(design / "toy_v5") == {
            "__init__.py": old["toy_v1/__init__.py"],
            "toy_v5.py": old["toy_v1/toy_v1.py"],
            "stage.py": old["toy_v1/stage.py"],
        }
        registry.clear_caches()
        assert registry.find("toy", "v5").path == design / "toy_v5/toy_v5.py"

    def test_what_is_named_unreached_is_named_for_the_copy(self, root: Path) -> None:
        design = root / "cutile/mla/toy"
        gap = '[[gap]]\ngap = "loop {}.py: for"\nwhy = "no problem that is checked gets there"\n'
        (design / "unreached.toml").write_text(gap.format("toy_v1"))
        made = clone(registry.find("toy", "v1"), "v5")
        assert made == [design / "toy_v5", design / "devlog.md", design / "unreached.toml"]
        assert (design / "unreached.toml").read_text().split("\n\n") == [
            gap.format("toy_v1").rstrip(), gap.format("toy_v5"),
        ]  # fmt: skip

    def test_the_entry_is_put_in_order(self, root: Path) -> None:
        _, devlog = clone(registry.find("toy"), "v5")
        text = devlog.read_text()
        headings = [line for line in text.splitlines() if line.startswith("### ")]
        assert headings == ["### v0: one block", "### v5: <verdict>", "### v9: later"]
        places = [text.index(f"#### {title}\n") for title in DEVLOG_SECTIONS]
        assert places == sorted(places)
        assert "What v5 does that v0 does not" in text

    def test_a_design_without_a_devlog_gets_one(self, root: Path) -> None:
        (root / "cutile/mla/toy/devlog.md").unlink()
        _, devlog = clone(registry.find("toy"), "v1000")
        assert devlog.read_text().startswith("---\ntitle: toy\nevidence: []\n---\n\n### v1000: ")

    def test_an_entry_needs_no_trailing_newline(self, root: Path) -> None:
        made = add_entry("### v0: a", registry.find("toy"), "v2")
        assert made.startswith("### v0: a\n\n### v2: <verdict>\n\n")
        assert made.endswith("\n")


class TestRefusals:
    @pytest.fixture(autouse=True)
    def unchanged(self, root: Path, named: None) -> Iterator[None]:
        """Whatever fails leaves every file as it was, and nothing besides."""
        before = tree(root)
        yield
        assert tree(root) == before

    @pytest.mark.parametrize(
        ("target", "said"),
        [
            ("v1", "toy_v1 exists already"),
            ("v9", "the devlog of toy has an entry v9 already"),
            *((name, "is not a version to clone to") for name in ("v0", "5", "toy_v5", "v05", "")),
        ],
    )
    def test_a_target_that_is_taken_or_no_version(self, target: str, said: str) -> None:
        with pytest.raises(CloneError, match=said):
            clone(registry.find("toy", "v1"), target)

    @pytest.fixture(autouse=True)
    def named(self, root: Path) -> None:
        """What the source's design names, which a clone writes to."""
        text = (
            '[[same]]\nedits = ["a"]\nwhy = "it changes nothing that is seen"\nversions = ["v1"]\n'
        )
        (root / "cutile/mla/toy/unreached.toml").write_text(text)

    @pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
    @pytest.mark.parametrize("last", [1, 2])
    def test_a_failure_at_the_end(
        self, monkeypatch: pytest.MonkeyPatch, error: BaseException, last: int
    ) -> None:
        write, calls = module.write_atomic, []

        def fail_after_the_work(path: Path, text: str) -> None:
            write(path, text)
            calls.append(path)
            if len(calls) == last:
                raise error

        monkeypatch.setattr(module, "write_atomic", fail_after_the_work)
        with pytest.raises(CloneError if isinstance(error, OSError) else KeyboardInterrupt):
            clone(registry.find("toy", "v1"), "v5")

    def test_a_failure_half_way(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(source: Path, target: Path, **_: object) -> None:
            (target / "toy_v1.py").write_text("half")
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(module.shutil, "copytree", full)
        with pytest.raises(CloneError, match=r"No space left on device\); nothing was changed"):
            clone(registry.find("toy", "v1"), "v5")

    @pytest.mark.parametrize(
        ("argv", "error", "said"),
        [
            (["toy_v1", "v1"], CloneError, "exists already"),
            (["toy_v3", "v5"], UnknownNameError, "unknown version of toy 'v3'"),
            (["other", "v1", "v5"], UnknownNameError, "unknown design 'other'"),
            (["toy", "v1", "v5", "--lang=cobol"], UnknownNameError,
             r"^unknown language of toy 'cobol' \(known: cutile-dsl\)$"),
            ([], UsageError, "^DESIGN and vN must be given; see "),
        ],
    )  # fmt: skip
    def test_bad_input(self, argv: list[str], error: type[Exception], said: str) -> None:
        with pytest.raises(error, match=said):
            main(argv)


class TestCommand:
    @pytest.mark.parametrize("argv", [
        ["toy", "v1", "v5"], ["toy@cutile-dsl", "v1", "v5"], ["toy_v1", "v5"],
        ["toy_v1@cutile-dsl", "v5"],
    ])  # fmt: skip
    def test_a_version_is_named_as_for_other_commands_or_in_one_word(
        self, root: Path, argv: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(argv) == 0
        assert (root / "cutile/mla/toy/toy_v5/toy_v5.py").read_text() == SOURCE
        assert capsys.readouterr().out.splitlines() == [
            "· the last version of toy is v1: v2 would come next",
            "kernels/cutile/mla/toy/toy_v5", "kernels/cutile/mla/toy/devlog.md",
        ]  # fmt: skip

    def test_of_the_next_version_nothing_is_said(
        self, root: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["toy", "v1", "v2"]) == 0
        assert "last version" not in capsys.readouterr().out

    @pytest.mark.parametrize("argv", [["toy", "v0", "v5"], ["toy", "v5"]])
    def test_the_base_is_v0(self, root: Path, argv: list[str]) -> None:
        assert main(argv) == 0
        assert "base" in (root / "cutile/mla/toy/toy_v5/toy_v5.py").read_text()

    def test_which_of_several_languages_it_took_is_said(
        self, root: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        shutil.copytree(root / "cutile", root / "cute_python")
        (root / "cute_python/__init__.py").write_text('LANGUAGE = "cute-dsl"\n')
        registry.clear_caches()
        assert main(["toy_v1", "v2"]) == 0
        assert capsys.readouterr().out.startswith(
            "· taken from cutile-dsl; --lang takes cute-dsl\n"
        )
        assert main(["toy@cute-dsl", "v1", "v2"]) == 0
        assert capsys.readouterr().out.startswith("kernels/cute_python/mla/toy/toy_v2\n")


@pytest.fixture
def all_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the project's kernels folder, which the registry reads."""
    root = tmp_path / "kernels"
    shutil.copytree(kernels_dir(), root, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(registry, "kernels_dir", lambda: root)
    registry.clear_caches()
    yield root
    registry.clear_caches()


@pytest.mark.parametrize(
    ("design", "version"),
    [("flash_attention@cutile-dsl", "v2"), ("flash_mla@cute-dsl", "v20"), ("thin_mla", "v2")],
)
def test_a_clone_has_the_gaps_of_its_source(design: str, version: str, all_kernels: Path) -> None:
    source = registry.find(design, version)
    own = {gap.replace(source.path.name, "{}") for gap in unreached.named(source)}
    clone(source, "v77")
    registry.clear_caches()
    made = registry.find(design, "v77")
    assert own
    assert own <= {gap.replace(made.path.name, "{}") for gap in unreached.named(made)}
    for read in (unreached.same, unreached.reaching, unreached.findings):
        assert read(made) == read(source)


CHECK = """
import sys
from pathlib import Path

import mla_var3.kernel
from mla_var3.runtime import registry

root = Path(sys.argv[1])
mla_var3.kernel.__path__ = [str(root)]
registry.kernels_dir = lambda: root
from mla_var3.runtime.check import check_plan

plan = registry.find(sys.argv[2], "v77").plan_class()()
case = check_plan(plan.check_plans()[0])
sys.exit(case.explain() or 0)
"""


@pytest.mark.slow
@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("design", "version"),
    [("flash_mla", "v0"), ("flash_mla", "v1"), ("mla_var6_plus", "v4"), ("gemm", "v1")],
)
def test_a_clone_passes_check_at_once(design: str, version: str, all_kernels: Path) -> None:
    clone(registry.find(design, version), "v77")
    done = subprocess.run(
        [sys.executable, "-c", CHECK, str(all_kernels), design],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
