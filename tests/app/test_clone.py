"""Clones of a fixture design and of the project's own versions."""

from __future__ import annotations

import ast
import importlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import mla_var3.app.clone as module
import mla_var3.kernel
from mla_var3.app.clone import add_entry, clone, find_source, main, rewritten
from mla_var3.errors import CloneError, UnknownNameError, UsageError
from mla_var3.knowledge.schema import DEVLOG_SECTIONS
from mla_var3.paths import kernels_dir
from mla_var3.runtime import registry
from mla_var3.runtime.renaming import Names, Rewriter
from tests.runtime.test_renaming import names_of

COMMON = '''"""Shared by all versions."""

toy_mla_scale = 2


class ToyMlaPlan:
    """Plan of the design."""

    name = "toy_mla"
'''

BASE = '''"""ToyMLA, base version: one block."""

from __future__ import annotations

import mla_var3.kernel.toylang.mla.toy_mla.toy_mla.toy_mla_reduce as toy_mla_tail
from mla_var3.kernel.toylang.mla.toy_mla.common import ToyMlaPlan, toy_mla_scale
from mla_var3.kernel.toylang.mla.toy_mla.toy_mla import toy_mla_reduce as stage

TOY_MLA_ROWS = 16


class ToyMlaTiling:
    """Tiles of the base version of toy_mla, see toy_mla/toy_mla.py."""

    def plan(self) -> "ToyMlaBasePlan":
        return ToyMlaBasePlan()


class ToyMlaBasePlan(ToyMlaPlan):
    """Problem and launch of the base version."""

    tiling_types = {"toy_mla": ToyMlaTiling}  # the base version has one stage, toy_mla_reduce aside
    module = "mla_var3.kernel.toylang.mla.toy_mla.toy_mla.toy_mla"
    other = "toy_mla_split_kv"

    def run(self) -> int:
        return toy_mla() + stage.toy_mla_reduce() + toy_mla_tail.toy_mla_reduce()


def toy_mla() -> int:
    return TOY_MLA_ROWS * toy_mla_scale
'''

BASE_REDUCE = '''"""Reduce stage."""


def toy_mla_reduce() -> int:
    return 1
'''

V1 = '''"""ToyMLA v1: like v0, but twice. Needs TileGym v1.5 or v12."""

import mla_var3.kernel.toylang.mla.toy_mla.toy_mla_v1.toy_mla_v1_reduce
from mla_var3.kernel.toylang.mla.toy_mla.toy_mla.toy_mla import ToyMlaBasePlan
from ..common import toy_mla_scale as scale
from .toy_mla_v1_reduce import *  # noqa: F403
from .toy_mla_v1_reduce import ToyMlaV1ReduceTiling
from . import toy_mla_v1_reduce as reduce_v1

VERSION = "v1"
KERNELS = {f"toy_mla_v1_{name}": 1 for name in ("a",)}


class ToyMlaV1Tiling(ToyMlaV1ReduceTiling):
    """Tiles of v1; see kernels/toylang/mla/toy_mla/toy_mla_v1/toy_mla_v1.py."""

    def plan(self) -> "ToyMlaV1Plan":
        return ToyMlaV1Plan()


class ToyMlaV1Plan(ToyMlaBasePlan):
    """Problem and launch of toy_mla v1."""

    tiling_types = {"toy_mla_v1": ToyMlaV1Tiling, "toy_mla": None}  # v1 only
    module = "mla_var3.kernel.toylang.mla.toy_mla.toy_mla_v1.toy_mla_v1"

    def run(self) -> int:
        full = mla_var3.kernel.toylang.mla.toy_mla.toy_mla_v1.toy_mla_v1_reduce
        return (
            toy_mla_v1() + reduce_v1.toy_mla_v1_reduce() + full.toy_mla_v1_reduce() * super().run()
        )


def toy_mla_v1() -> int:
    return scale * toy_mla_v12()


def toy_mla_v12() -> int:
    return 100
'''

V1_REDUCE = """class ToyMlaV1ReduceTiling: ...


def toy_mla_v1_reduce():
    return 1000
"""

DEVLOG = """---
title: toy_mla
evidence: []
---

### v0: one block

Text.

### v9: later

Text.
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A kernels folder with one design of two versions, and another with a longer name."""
    files = {
        "toy_mla/__init__.py": "",
        "toy_mla/devlog.md": DEVLOG,
        "toy_mla/common.py": COMMON,
        "toy_mla/toy_mla/__init__.py": '"""Base version: one block."""\n',
        "toy_mla/toy_mla/toy_mla.py": BASE,
        "toy_mla/toy_mla/toy_mla_reduce.py": BASE_REDUCE,
        "toy_mla/toy_mla_v1/__init__.py": "",
        "toy_mla/toy_mla_v1/toy_mla_v1.py": V1,
        "toy_mla/toy_mla_v1/toy_mla_v1_reduce.py": V1_REDUCE,
        "toy_mla/toy_mla_v1/data/table.json": '{"toy_mla_v1": 1}',
        "toy_mla/toy_mla_v1/__pycache__/x.pyc": "",
        "toy_mla/toy_mla_v2/README": "no version: its module is missing",
        "toy_mla_split_kv/toy_mla_split_kv/toy_mla_split_kv.py": "",
    }
    for name, text in files.items():
        path = tmp_path / "kernels" / "toylang" / "mla" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "kernels"


@pytest.fixture
def importable(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The same folder, importable as part of ``mla_var3.kernel``."""
    monkeypatch.setattr(mla_var3.kernel, "__path__", [*mla_var3.kernel.__path__, str(root)])
    before = set(sys.modules)
    yield root
    for name in set(sys.modules) - before:
        del sys.modules[name]
    vars(mla_var3.kernel).pop("toylang", None)


def tree(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def load(name: str) -> object:
    return importlib.import_module(f"mla_var3.kernel.toylang.mla.toy_mla.{name}.{name}")


class TestCloneOfAVersion:
    def test_runs_on_its_own(self, importable: Path) -> None:
        clone("toy_mla_v1", "v5", root=importable)
        shutil.rmtree(importable / "toylang/mla/toy_mla/toy_mla_v1")
        new = load("toy_mla_v5")
        assert new.ToyMlaV5Plan().run() == 200 + 1000 + 1000 * 34
        assert isinstance(new.ToyMlaV5Tiling().plan(), new.ToyMlaV5Plan)

    def test_every_name_is_rewritten(self, root: Path) -> None:
        package, devlog = clone("toy_mla_v1", "v5", root=root)
        assert devlog == package.parent / "devlog.md"
        assert sorted(tree(package)) == [
            "__init__.py",
            "data/table.json",
            "toy_mla_v5.py",
            "toy_mla_v5_reduce.py",
        ]
        text = (package / "toy_mla_v5.py").read_text()
        assert '"""ToyMLA v5: like v0, but twice. Needs TileGym v1.5 or v12."""' in text
        assert 'VERSION = "v5"' in text
        assert 'f"toy_mla_v5_{name}"' in text
        assert '{"toy_mla_v5": ToyMlaV5Tiling, "toy_mla": None}  # v5 only' in text
        assert 'def plan(self) -> "ToyMlaV5Plan"' in text
        assert "toylang/mla/toy_mla/toy_mla_v5/toy_mla_v5.py" in text
        assert "toy_mla.toy_mla.toy_mla import ToyMlaBasePlan" in text
        assert "from ..common import toy_mla_scale as scale" in text
        assert "def toy_mla_v12()" in text
        assert "Problem and launch of toy_mla v5." in text

    def test_source_is_untouched(self, root: Path) -> None:
        before = tree(root)
        clone("toy_mla_v1", "v5", root=root)
        after = tree(root)
        assert {name: after[name] for name in before if "devlog" not in name} == {
            name: text for name, text in before.items() if "devlog" not in name
        }

    def test_back_again_is_the_same_text(self, root: Path) -> None:
        clone("toy_mla_v1", "v5", root=root)
        folder = root / "toylang/mla/toy_mla"
        original = tree(folder / "toy_mla_v1")
        shutil.rmtree(folder / "toy_mla_v1")
        (folder / "devlog.md").unlink()
        clone("toy_mla_v5", "v1", root=root)
        del original["__pycache__/x.pyc"]
        assert tree(folder / "toy_mla_v1") == original


class TestCloneOfTheBase:
    @pytest.mark.parametrize("source", ["toy_mla", "toy_mla_v0", "toy-mla"])
    def test_runs_on_its_own(self, importable: Path, source: str) -> None:
        clone(source, "v3", root=importable)
        shutil.rmtree(importable / "toylang/mla/toy_mla/toy_mla")
        new = load("toy_mla_v3")
        assert new.ToyMlaV3Plan().run() == 34
        assert new.ToyMlaV3Plan.name == "toy_mla"
        assert isinstance(new.ToyMlaV3Tiling().plan(), new.ToyMlaV3Plan)

    def test_every_name_is_rewritten_and_the_design_is_kept(self, root: Path) -> None:
        package, _ = clone("toy_mla", "v3", root=root)
        assert sorted(tree(package)) == ["__init__.py", "toy_mla_v3.py", "toy_mla_v3_reduce.py"]
        text = (package / "toy_mla_v3.py").read_text()
        assert '"""ToyMLA, v3: one block."""' in text
        assert "import mla_var3.kernel.toylang.mla.toy_mla.toy_mla_v3.toy_mla_v3_reduce as" in text
        assert "toy_mla.common import ToyMlaPlan, toy_mla_scale" in text
        assert "class ToyMlaV3Plan(ToyMlaPlan)" in text
        assert "Tiles of v3 of toy_mla, see toy_mla/toy_mla_v3.py." in text
        assert '{"toy_mla_v3": ToyMlaV3Tiling}  # v3 has one stage, toy_mla_v3_reduce aside' in text
        assert '"mla_var3.kernel.toylang.mla.toy_mla.toy_mla_v3.toy_mla_v3"' in text
        assert 'other = "toy_mla_split_kv"' in text
        assert "TOY_MLA_V3_ROWS" in text
        assert (package / "__init__.py").read_text() == '"""v3: one block."""\n'


class TestDevlog:
    def test_entry_is_put_in_order(self, root: Path) -> None:
        _, devlog = clone("toy_mla_v1", "v5", root=root)
        text = devlog.read_text()
        assert text.index("### v0") < text.index("### v5: <verdict>") < text.index("### v9")
        assert text.replace(text[text.index("### v5") : text.index("### v9")], "") == DEVLOG
        entry = text[text.index("### v5") : text.index("### v9")]
        titles = [line[5:] for line in entry.splitlines() if line.startswith("#### ")]
        assert titles == list(DEVLOG_SECTIONS)
        assert "{{ measured }}" in entry

    def test_design_without_a_devlog_gets_one(self, root: Path) -> None:
        (root / "toylang/mla/toy_mla/devlog.md").unlink()
        _, devlog = clone("toy_mla", "v10", root=root)
        assert devlog.read_text().startswith("---\ntitle: toy_mla\nevidence: []\n---\n\n### v10: ")

    def test_entry_after_the_last(self, root: Path) -> None:
        _, devlog = clone("toy_mla", "v10", root=root)
        assert devlog.read_text().startswith(DEVLOG.rstrip("\n") + "\n\n### v10: <verdict>\n")


class TestRefusals:
    """Whatever goes wrong, the folder is as it was."""

    @pytest.fixture(autouse=True)
    def unchanged(self, root: Path) -> Iterator[None]:
        self.before = tree(root)
        yield
        assert tree(root) == self.before
        assert not list(root.rglob(".*"))

    def test_existing_target(self, root: Path) -> None:
        with pytest.raises(CloneError, match="toy_mla_v1 exists already"):
            clone("toy_mla", "v1", root=root)

    def test_existing_folder_that_is_no_version(self, root: Path) -> None:
        with pytest.raises(CloneError, match="toy_mla_v2 exists already"):
            clone("toy_mla", "toy_mla_v2", root=root)

    def test_existing_devlog_entry(self, root: Path) -> None:
        with pytest.raises(CloneError, match="has an entry v9 already"):
            clone("toy_mla", "v9", root=root)

    @pytest.mark.parametrize("target", ["v0", "5", "", "v05", "V5", "other_v5", "v5/../v6"])
    def test_target_that_is_no_version(self, root: Path, target: str) -> None:
        with pytest.raises(CloneError, match="is not a version to clone to"):
            clone("toy_mla", target, root=root)

    def test_unknown_source(self, root: Path) -> None:
        with pytest.raises(UnknownNameError, match="did you mean 'toy_mla_v1'"):
            clone("toy_mla_v4", "v5", root=root)

    def test_two_languages(self, root: Path) -> None:
        other = root / "otherlang/mla/toy_mla/toy_mla"
        other.mkdir(parents=True)
        (other / "toy_mla.py").write_text("")
        self.before = tree(root)
        with pytest.raises(CloneError, match="exists in otherlang, toylang"):
            clone("toy_mla", "v5", root=root)
        assert find_source(root, "toy_mla", "otherlang") == (other.parent, "v0")

    def test_source_that_is_no_python(self, root: Path) -> None:
        (root / "toylang/mla/toy_mla/toy_mla_v1/toy_mla_v1.py").write_text("x = 1\ndef (:\n")
        self.before = tree(root)
        with pytest.raises(CloneError, match=r"toy_mla_v1/toy_mla_v1\.py:2: invalid syntax"):
            clone("toy_mla_v1", "v5", root=root)

    def test_source_that_is_no_text(self, root: Path) -> None:
        (root / "toylang/mla/toy_mla/toy_mla_v1/toy_mla_v1.py").write_bytes(b"\xff\xfe")
        self.before = tree(root)
        with pytest.raises(CloneError, match="nothing was changed"):
            clone("toy_mla_v1", "v5", root=root)

    def test_names_that_would_collide(self, root: Path) -> None:
        path = root / "toylang/mla/toy_mla/toy_mla/toy_mla.py"
        path.write_text(BASE + "\n\nclass ToyMlaBaseTiling: ...\n")
        self.before = tree(root)
        with pytest.raises(CloneError, match="would both become ToyMlaV3Tiling"):
            clone("toy_mla", "v3", root=root)

    @pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
    @pytest.mark.parametrize("step", ["_stage", "write_atomic"])
    def test_failure_half_way(
        self, root: Path, monkeypatch: pytest.MonkeyPatch, step: str, error: BaseException
    ) -> None:
        real = getattr(module, step)
        calls = []

        def fail_after_the_work(*args: object) -> None:
            real(*args)
            calls.append(args)
            if len(calls) == 1:
                raise error

        monkeypatch.setattr(module, step, fail_after_the_work)
        expected = CloneError if isinstance(error, OSError) else KeyboardInterrupt
        with pytest.raises(expected):
            clone("toy_mla_v1", "v5", root=root)

    def test_failure_after_a_new_devlog(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (root / "toylang/mla/toy_mla/devlog.md").unlink()
        self.before = tree(root)

        def fail(path: Path, text: str) -> None:
            path.write_text(text)
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(module, "write_atomic", fail)
        with pytest.raises(CloneError, match="Input/output error"):
            clone("toy_mla_v1", "v5", root=root)


def test_relative_and_foreign_imports() -> None:
    source = (
        "from . import toy_mla_reduce\n"
        "from .. import toy_mla\n"
        "from ..toy_mla import toy_mla_reduce\n"
        "from ...toy_mla.toy_mla.toy_mla import toy_mla as kernel\n"
        "from ..common import toy_mla_scale\n"
        "from elsewhere import toy_mla_other\n"
        "import elsewhere.toy_mla, numpy as toy_mla_np\n"
        "x = elsewhere.toy_mla_other(toy_mla_np, toy_mla_scale)[0].call().flag\n"
    )
    files = {Path("toy_mla.py"): source, Path("toy_mla_reduce.py"): ""}
    rewriter = Rewriter(names_of("toy_mla", "v0", "v3"), files)
    assert rewritten(rewriter, Path("toy_mla.py"), source) == (
        "from . import toy_mla_v3_reduce\n"
        "from .. import toy_mla_v3\n"
        "from ..toy_mla_v3 import toy_mla_v3_reduce\n"
        "from ...toy_mla.toy_mla_v3.toy_mla_v3 import toy_mla_v3 as kernel\n"
        "from ..common import toy_mla_scale\n"
        "from elsewhere import toy_mla_other\n"
        "import elsewhere.toy_mla, numpy as toy_mla_v3_np\n"
        "x = elsewhere.toy_mla_other(toy_mla_v3_np, toy_mla_scale)[0].call().flag\n"
    )


def test_entry_needs_no_trailing_newline() -> None:
    text = add_entry("### v1: a", names_of("toy_mla", "v0", "v3"))
    assert text.startswith("### v1: a\n\n### v3: <verdict>\n\n#### What changed\n\n")
    assert text.endswith("\n")


CUTE = """class ToyMlaV1Kernel:
    @cute.jit
    def __call__(self, x):
        self.toy_mla_v1_main(x).launch()

    @cute.kernel
    def toy_mla_v1_main(self, x):
        stage = ToyMlaV1Barrier.FULL


class ToyMlaV1Barrier(enum.IntEnum):
    FULL = enum.auto()
"""


def test_classes_with_methods_are_renamed_as_functions_are() -> None:
    """Kernels of other languages are methods of a class, with enumerations beside it."""
    path = Path("toy_mla_v1.py")
    text = rewritten(Rewriter(names_of("toy_mla", "v1", "v5"), {path: CUTE}), path, CUTE)
    assert "v1" not in text.lower()
    assert text.count("toy_mla_v5_main") == 2
    assert text.count("ToyMlaV5Barrier") == 2


def test_of_several_languages_the_preferred_one_is_taken(root: Path, monkeypatch) -> None:
    shutil.copytree(root / "toylang", root / "otherlang")
    monkeypatch.setattr(module.registry, "packages", lambda: {"toylang": registry.PREFERRED})
    folder, _ = find_source(root, "toy_mla_v1")
    assert folder.parts[-3] == "toylang"
    assert find_source(root, "toy_mla_v1", "otherlang")[0].parts[-3] == "otherlang"


class TestCommandLine:
    @pytest.fixture(autouse=True)
    def _root(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "kernels_dir", lambda: root)
        monkeypatch.chdir(root)

    def test_prints_what_it_wrote(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["toy_mla_v1", "v5"]) == 0
        assert capsys.readouterr().out.splitlines() == [
            "toylang/mla/toy_mla/toy_mla_v5",
            "toylang/mla/toy_mla/devlog.md",
        ]

    @pytest.mark.parametrize(
        "argv", [["toy_mla", "v1", "v5"], ["toy_mla@toylang", "v1", "v5"], ["toy_mla_v1", "v5"]]
    )
    def test_a_version_is_named_as_for_other_commands_or_in_one_word(
        self, root: Path, argv: list[str]
    ) -> None:
        assert main(argv) == 0
        made = root / "toylang/mla/toy_mla/toy_mla_v5/toy_mla_v5.py"
        assert "ToyMLA v5: like v0, but twice" in made.read_text()

    def test_the_base_is_v0(self, root: Path) -> None:
        assert main(["toy_mla", "v0", "v5"]) == 0
        made = root / "toylang/mla/toy_mla/toy_mla_v5/toy_mla_v5.py"
        assert "twice" not in made.read_text()

    def test_which_of_several_languages_it_took_is_said(
        self, root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        shutil.copytree(root / "toylang", root / "otherlang")
        monkeypatch.setattr(module.registry, "packages", lambda: {"toylang": registry.PREFERRED})
        assert main(["toy_mla_v1", "v5"]) == 0
        assert capsys.readouterr().out.startswith("· taken from toylang; --lang takes otherlang\n")
        assert main(["toy_mla@otherlang", "v1", "v5"]) == 0
        assert capsys.readouterr().out.startswith("otherlang/mla/toy_mla/toy_mla_v5\n")

    @pytest.mark.parametrize(
        ("argv", "error", "said"),
        [
            (["toy_mla_v1", "v1"], CloneError, "exists already"),
            (["toy_mla_v1", "v5", "--lang=cobol"], UnknownNameError,
             r"^unknown language 'cobol' \(known: toylang\)$"),
            ([], UsageError, "^DESIGN and vN must be given; see "),
        ],
    )  # fmt: skip
    def test_bad_input(self, argv: list[str], error: type[Exception], said: str) -> None:
        with pytest.raises(error, match=said):
            main(argv)


REAL = registry.versions()


@pytest.mark.sampled(5)
@pytest.mark.parametrize("version", REAL, ids=lambda v: f"{v.package}-{v.name}")
def test_clones_of_the_projects_versions_carry_no_old_name(
    version: registry.Version, tmp_path: Path
) -> None:
    root = tmp_path / "kernels"
    shutil.copytree(kernels_dir(), root, ignore=shutil.ignore_patterns("__pycache__"))
    source, number = find_source(root, version.name, version.package)
    package, devlog = clone(version.name, "v77", root=root, package=version.package)
    names = Names(root, source, number, "v77")
    for path in sorted(package.rglob("*.py")):
        tree = ast.parse(path.read_text())
        bound = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
        bound |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert bound == {names.rename(word) for word in bound}
        assert path.stem == names.rename(path.stem)
        if number != "v0":
            assert not re.search(rf"{names.source_module}(?!\d)", path.read_text())
    assert "### v77: <verdict>" in devlog.read_text()


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


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("name", "design"),
    [
        ("flash_mla", "flash_mla"),
        ("flash_mla_v1", "flash_mla"),
        ("mla_var6_plus_v4", "mla_var6_plus"),
    ],
)
def test_clone_passes_check_at_once(name: str, design: str, tmp_path: Path) -> None:
    root = tmp_path / "kernels"
    shutil.copytree(kernels_dir(), root, ignore=shutil.ignore_patterns("__pycache__"))
    clone(name, "v77", root=root)
    done = subprocess.run(
        [sys.executable, "-c", CHECK, str(root), design],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
