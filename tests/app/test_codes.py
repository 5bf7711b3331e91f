"""Edits of kernels and workloads, and which versions they concern: in a copy of the package."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import mla_var3
from mla_var3 import evidence, paths
from mla_var3.app import building, codes
from mla_var3.errors import UsageError
from mla_var3.evidence import builds, revisions, states
from mla_var3.runtime import registry
from tests import warm
from tests.evidence.making import passed, record, stage
from tests.factories import device
from tests.test_adding import UNDER_WAY

#: Several processes import torch and compile one after the other.
pytestmark = pytest.mark.timeout(1500)

GEMM, FLASH = "cutile/gemm/gemm", "cutile/mla/flash_mla"
GEMM_V0, FLASH_V0 = f"kernels/{GEMM}/gemm/gemm.py", f"kernels/{FLASH}/flash_mla/flash_mla.py"
PROBLEMS, LATENT, COSTS = (
    f"src/mla_var3/workloads/mla/{name}.py" for name in ("problems", "latent", "costs")
)


class Copy:
    """The package with two designs, one version each, and their tables."""

    def __init__(self, root: Path) -> None:
        self.root = root
        package = Path(mla_var3.__file__).parent
        shutil.copytree(
            package, root / "src/mla_var3", ignore=shutil.ignore_patterns("kernel", UNDER_WAY)
        )
        (root / "src/mla_var3/kernel").symlink_to(root / "kernels")
        shutil.copytree(paths.repo_root() / "knowledge/devices", root / "knowledge/devices")
        for place in ("", "cutile"):
            self._take(f"{place}/__init__.py".lstrip("/"))
        for design, name in ((GEMM, "gemm"), (FLASH, "flash_mla")):
            self._take(f"{design}/__init__.py")
            self._take(f"{design}/{name}")

    def _take(self, name: str) -> None:
        source, place = paths.kernels_dir() / name, self.root / "kernels" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            ignored = shutil.ignore_patterns(UNDER_WAY)
            shutil.copytree(source, place, ignore=ignored, dirs_exist_ok=True)
        elif source.is_file():
            shutil.copy(source, place)

    def take_cute(self, layer: str, design: str) -> None:
        """A CuTe design's base version with the kit, and one case of its committed table."""
        for name in ("__init__.py", "kit", f"{layer}/__init__.py"):
            self._take(f"cute_python/{name}")
        for name in ("__init__.py", design):
            self._take(f"cute_python/{layer}/{design}/{name}")
        table = builds.read(builds.path_of("cute_python", layer, design, paths.results_dir()))
        base = table.versions["v0"]
        build = base.today.model_copy(update={"compiled": base.today.compiled[-1:]})
        cut = {"builds": (build,), "defaults": None}
        one = table.model_copy(update={"versions": {"v0": base.model_copy(update=cut)}})
        builds.write(one, builds.path_of("cute_python", layer, design, self.root / "results"))

    def edit(self, name: str, old: str, new: str) -> None:
        file = self.root / name
        text = file.read_text()
        assert old in text, f"{name} no longer says {old!r}"
        file.write_text(text.replace(old, new))

    def run(self, *arguments: str, of: str = "codes") -> tuple[int, str]:
        """A command over codes, or records, in the copy: its exit code and what it prints."""
        done = warm.run(f"mla_var3.app.{of}", *arguments, root=self.root)
        assert not done.stderr, done.stderr
        return done.returncode, done.stdout

    def again(self) -> Copy:
        """The copy as it is on disk, for one further edit."""
        place = self.root.with_name(f"{self.root.name}-edited")
        shutil.copytree(self.root, place, symlinks=True)
        (place / "src/mla_var3/kernel").unlink()
        (place / "src/mla_var3/kernel").symlink_to(place / "kernels")
        made = Copy.__new__(Copy)
        made.root = place
        return made


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Copy:
    """The copy, with the tables of what it compiles to."""
    made = Copy(tmp_path_factory.mktemp("tables") / "copy")
    code, said = made.run("write", "--arch=sm_90")
    assert code == 0, said
    assert "wrote results/fingerprints/cutile/gemm/gemm.json" in said
    code, said = made.run("workloads")
    assert "new revision of mla.LatentProblem" in said
    return made


@pytest.fixture
def copy(written, tmp_path) -> Copy:
    made = written.again()
    yield made
    shutil.rmtree(made.root)


def changed(said: str) -> list[str]:
    return [line for line in said.splitlines() if line.startswith("CHANGED")]


@pytest.mark.slow
def test_edits_that_compile_to_the_same_change_nothing(copy):
    copy.edit(GEMM_V0, "    acc = ct.zeros", "    # A comment.\n    acc = ct.zeros")
    copy.edit(GEMM_V0, '"""Grid (column tiles, row tiles)', '"""Other words')
    copy.edit(GEMM_V0, "acc", "total")  # a renamed variable
    copy.edit(GEMM_V0, "def gemm(", "def product(")
    copy.edit(GEMM_V0, "            gemm,\n", "            product,\n")
    copy.edit(
        COSTS,
        "def flash_mla_cost(",
        "def flash_mla_cost_(*_, **__):\n    ...\n\n\ndef flash_mla_cost(",
    )
    copy.edit(
        LATENT,
        "        return flash_mla_cost(",
        "        return 2 * Cost(1, 1) if 0 else flash_mla_cost(",
    )
    code, said = copy.run("check")
    assert (code, changed(said)) == (0, []), said
    code, said = copy.run("workloads")
    assert (code, changed(said)) == (0, []), said


@pytest.mark.slow
def test_a_doubled_scale_changes_its_workload_and_the_kernels_that_are_passed_it(copy):
    copy.edit(
        PROBLEMS, "return self.sharpness / math.sqrt", "return 2.0 * self.sharpness / math.sqrt"
    )
    code, said = copy.run("workloads")
    assert code == 1
    assert "CHANGED mla.LatentProblem: input1; lse; o" in said  # Inputs aim at a score
    assert "same gemm.GemmProblem" in said
    code, said = copy.run("check")
    assert code == 1
    assert {line.split()[1] for line in changed(said)} == {"flash_mla"}
    assert "scalar 0 of attention" in said


@pytest.mark.slow
def test_another_grid_is_named_and_refused_until_it_is_declared(copy):
    copy.edit(GEMM_V0, "ct.cdiv(self.m, x.tile_m))", "ct.cdiv(self.m, x.tile_m) + 1)")
    code, said = copy.run("check")
    assert code == 1
    assert {line.split()[1] for line in changed(said)} == {"gemm"}
    assert "grid of gemm " in said
    code, said = copy.run("write", "gemm", "v0")
    assert code == 1
    assert (
        '1 versions were not written: mend them, or declare the change with --changed="why"' in said
    )
    code, said = copy.run("write", "gemm", "v0", "--changed=a grid with one row more")
    assert code == 0
    table = builds.read(builds.path_of("cutile", "gemm", "gemm", copy.root / "results"))
    new, old = table.versions["v0"].builds
    assert new.why == "a grid with one row more"
    assert not set(new.sources) & set(old.sources)


def test_where_launches_stand_static_records_alone_are_of_other_code(copy):
    path = builds.path_of("cutile", "gemm", "gemm", copy.root / "results")
    table = builds.read(path)
    base = table.versions["v0"]
    launched = base.today.compiled[0]
    case = launched.case
    static = launched.model_copy(
        update={"case": case.model_copy(update={"device": "static/sm_90"})}
    )
    before = base.today.model_copy(update={"compiled": (static, launched)})
    other = {"gemm": static.stages["gemm"].model_copy(update={"grid": (9,)})}
    older = builds.Build(
        sources=("0" * 16,), compiled=(static, launched.model_copy(update={"stages": other}))
    )
    known = base.model_copy(update={"builds": (before, older), "defaults": None})
    builds.write(table.model_copy(update={"versions": {"v0": known}}), path)
    copy.edit(GEMM_V0, "    acc = ct.zeros", "    scale = 2.0\n    acc = scale * ct.zeros")
    with pytest.raises(UsageError, match="add --changed"):
        codes.write("gemm", "v0", launches_stand=True)
    code, said = copy.run("write", "gemm", "v0", "--changed=compiles", "--launches-stand")
    assert code == 0, said
    new, old, oldest = builds.read(path).versions["v0"].builds
    assert old.find(static.case) == static != new.find(static.case)
    assert old.find(case) == new.find(case) != launched
    assert oldest.find(case).stages == other


@pytest.mark.slow
def test_another_swizzle_in_the_kit_changes_the_designs_that_use_it_alone(copy):
    copy.take_cute("gemm", "hopper_gemm")
    copy.take_cute("attention", "hopper_attention")
    kit = "kernels/cute_python/kit/gemm_tiles.py"
    copy.edit(kit, "128-byte swizzle: [rows, 64, count]", "in swizzled rows: [rows, 64, count]")
    for design in ("hopper_gemm", "hopper_attention"):
        code, said = copy.run("check", design)
        assert (code, changed(said)) == (0, []), said
        assert f"same {design} v0: 1 cases" in said
    copy.edit(kit, "SmemLayoutAtomKind.K_SW128", "SmemLayoutAtomKind.K_SW64")
    code, said = copy.run("check", "hopper_gemm")
    assert code == 1
    assert "code of gemm" in said, said
    code, said = copy.run("check", "hopper_attention")
    assert (code, changed(said)) == (0, []), said


def test_a_table_that_leaves_switches_out_is_completed(copy):
    path = builds.path_of("cutile", "gemm", "gemm", copy.root / "results")
    table = builds.read(path)
    base = table.versions["v0"]
    whole = {one.case.key for one in base.today.compiled}
    build = base.today.model_copy(update={"compiled": base.today.compiled[:1]})
    part = {"v0": base.model_copy(update={"builds": (build,), "defaults": None})}
    builds.write(table.model_copy(update={"versions": part}), path)
    code, said = copy.run("check", "gemm")
    assert code == 0
    assert "same gemm v0: 1 cases" in said
    assert copy.run("write", "gemm", "--arch=sm_90")[0] == 0
    completed = {one.case.key for one in builds.read(path).versions["v0"].today.compiled}
    assert completed == whole
    assert len(whole) > 1


def test_one_case_in_many_is_compiled_where_the_sources_are_known(copy):
    path = builds.path_of("cutile", "gemm", "gemm", copy.root / "results")
    every = len(builds.read(path).versions["v0"].today.compiled)
    code, said = copy.run("check", "gemm", "--one_in=1000")
    assert (code, "same gemm v0: 1 cases" in said) == (0, True), said
    copy.edit(GEMM_V0, "acc = ct.zeros", "acc = ct.ones")
    code, said = copy.run("check", "gemm", "--one_in=1000")
    assert code == 1
    assert f"compiling gemm v0: {every} cases" in said, "an edit is not sampled"


@pytest.mark.parametrize("one_in", [1, 3, 4, 100])
def test_all_cases_come_round(monkeypatch, one_in):
    asked = []

    def compiled(_version, cases, _say):
        asked.append([case.key for case in cases])
        return []

    monkeypatch.setattr(building, "compiled", compiled)
    gemm = registry.find("gemm@cutile-dsl", "v0")
    every = [one.case.key for one in building.table_of(gemm).versions["v0"].today.compiled]
    for turn in range(min(one_in, len(every))):
        building.compare(gemm, lambda _said: None, one_in=one_in, turn=1000 * len(every) + turn)
    assert sorted(key for keys in asked for key in keys) == sorted(every)


class TestStates:
    """Reading the tables, without a compiler."""

    @pytest.fixture(autouse=True)
    def _in(self, copy, monkeypatch):
        monkeypatch.setenv("HYPERMLA_ROOT", str(copy.root))
        monkeypatch.setattr("mla_var3.evidence.sources.kernels_dir", lambda: copy.root / "kernels")
        self.copy = copy
        table = builds.read(builds.path_of("cutile", "gemm", "gemm"))
        self.case = table.versions["v0"].today.compiled[0].case
        self.sources = {name: file.blob for name, file in table.versions["v0"].files.items()}

    def made(self, **changes):
        fields = {
            "kernel": {
                "layer": "gemm", "design": "gemm", "sources": self.sources,
            },
            "problem": self.case.problem, "toolchain": {"cuda-tile": "1.7.0"},
            "outcome": passed(stages=[stage("gemm", tiling=self.case.tilings[0])]),
        }  # fmt: skip
        return record(**{**fields, **changes})

    def on_a_gpu(self):
        return self.made(device=device(), target="nvidia-h200-sxm", mode="disabled")

    def test_equal_sources_are_fresh(self):
        assert states.state_of(self.made()) == states.State("fresh")

    def test_a_comment_is_fresh_and_an_edit_is_not_until_it_is_compiled(self):
        self.copy.edit(GEMM_V0, "    acc = ct.zeros", "    # A comment.\n    acc = ct.zeros")
        assert states.state_of(self.made()) == states.State("fresh")
        self.copy.edit(GEMM_V0, "acc", "total")
        state = states.state_of(self.made())
        assert state.kind == "code changed"
        assert state.reasons == (
            f"{GEMM_V0} changed since it was last compiled: run `nox -s codes -- write`",
        )
        assert self.copy.run("write", "gemm")[0] == 0
        assert states.state_of(self.on_a_gpu()) == states.State("fresh")
        (reason,) = states.state_of(self.made(problem={**self.case.problem, "m": 77})).reasons
        assert "nothing of it was compiled at its problem" in reason

    @pytest.mark.slow
    def test_verify_compiles_and_runs_what_was_edited_once(self):
        evidence.write(self.on_a_gpu())
        self.copy.edit(GEMM_V0, "acc", "total")
        said = self.verified()
        assert "gemm v0 was edited since it was last compiled" in said
        assert "0 of changed code" in said
        self.copy.edit("src/mla_var3/workloads/gemm.py", "a @ b.T}", "2.0 * a @ b.T}")
        said = self.verified()
        assert "gemm.GemmProblem was edited since it was last run" in said
        assert "inputs, reference or tolerance of gemm.GemmProblem changed" in said
        assert "1 of changed code" in said
        assert "edited" not in self.verified()

    def verified(self):
        return self.copy.run("verify", of="records")[1]

    def test_another_grid_is_the_reason(self):
        self.copy.edit(GEMM_V0, "ct.cdiv(self.m, x.tile_m))", "ct.cdiv(self.m, x.tile_m) + 1)")
        assert self.copy.run("write", "gemm", "--changed=why")[0] == 0
        (reason,) = states.state_of(self.on_a_gpu()).reasons
        assert reason.startswith("grid of gemm ")

    def test_other_tools_are_no_warning(self):
        state = states.state_of(self.made(toolchain={"cuda-tile": "1.6.0"}))
        assert state == states.State("toolchain moved", ("cuda-tile 1.6.0 -> 1.7.0",))
        assert not state.is_stale
        assert states.state_of(self.made(toolchain={"cuda-tile": "1.7"})).kind == "fresh"

    def test_another_revision_of_the_workload_is(self):
        path = revisions.path_of()
        table = revisions.read(path)
        known = table.problems["gemm.GemmProblem"]
        other = known[0].model_copy(update={"id": "0" * 16, "why": "inputs of another seed"})
        revisions.write(revisions.Table(problems={"gemm.GemmProblem": (*known, other)}), path)
        state = states.state_of(self.made())
        assert state.kind == "code changed"
        assert state.reasons == (
            "inputs, reference or tolerance of gemm.GemmProblem changed (inputs of another seed)",
        )
        assert states.state_of(self.made(workload="0" * 16)).kind == "fresh"
