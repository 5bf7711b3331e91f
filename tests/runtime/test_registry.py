from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest

from mla_var3.errors import PlanError, UnknownNameError
from mla_var3.runtime import KernelPlan, registry

LANGUAGES = {"cutile": "cutile-dsl", "cute_python": "cute-dsl"}


def plant(root: Path, package: str, design: str, *versions: str, text: str = "") -> Path:
    """A design folder with a module for each version name, in a package that has a language."""
    (root / package).mkdir(exist_ok=True)
    declared = f'LANGUAGE = "{LANGUAGES[package]}"\n' if package in LANGUAGES else ""
    (root / package / "__init__.py").write_text(declared)
    folder = root / package / "mla" / design
    for name in versions:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").touch()
        (folder / name / f"{name}.py").write_text(text)
    return folder


@pytest.fixture
def kernels(tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "kernels_dir", lambda: tmp_path)
    registry.clear_caches()
    yield tmp_path
    registry.clear_caches()


class TestDiscovery:
    def test_versions_of_all_languages_in_order(self, kernels):
        plant(kernels, "cutile", "toy", "toy_v10", "toy_v2", "toy", "toy_v1")
        plant(kernels, "cute_python", "toy", "toy")
        plant(kernels, "cutile", "a", "a_v1")
        found = [(v.language, v.layer, v.design, v.version) for v in registry.versions()]
        assert found == [
            ("cutile-dsl", "mla", "a", "v1"),
            ("cutile-dsl", "mla", "toy", "v0"),
            ("cutile-dsl", "mla", "toy", "v1"),
            ("cutile-dsl", "mla", "toy", "v2"),
            ("cutile-dsl", "mla", "toy", "v10"),
            ("cute-dsl", "mla", "toy", "v0"),
        ]

    def test_a_design_in_two_languages_is_taken_in_the_preferred_one(self, kernels):
        plant(kernels, "cutile", "toy", "toy")
        plant(kernels, "cute_python", "toy", "toy", "toy_v1")
        plant(kernels, "cute_python", "own", "own")
        assert list(registry.designs()) == ["toy", "own", "toy@cute-dsl"]
        assert registry.find("toy").language == "cutile-dsl"
        for found in (registry.find("toy@cute-dsl", "v1"), registry.find("toy", "v1", "cute-dsl")):
            assert (found.language, found.key) == ("cute-dsl", "toy@cute-dsl v1")
        assert registry.find("own").key == "own v0"
        assert registry.other_languages(registry.find("toy")) == ["cute-dsl"]
        assert [v.key for v in registry.select("toy@cute-dsl")] == [
            "toy@cute-dsl v0", "toy@cute-dsl v1",
        ]  # fmt: skip
        with pytest.raises(UnknownNameError, match="unknown language of own 'cutile-dsl'"):
            registry.find("own", None, "cutile-dsl")
        with pytest.raises(UnknownNameError, match="unknown version of toy 'v1'"):
            registry.find("toy", "v1")

    def test_the_module_follows_the_folders(self, kernels):
        folder = plant(kernels, "cutile", "toy", "toy_v1")
        (version,) = registry.versions()
        assert version.module == "mla_var3.kernel.cutile.mla.toy.toy_v1.toy_v1"
        assert version.path == folder / "toy_v1" / "toy_v1.py"
        assert (version.name, version.key) == ("toy_v1", "toy v1")

    @pytest.mark.parametrize("name", ["toy_v0", "toy_v01", "toy_vx", "toyish", "toy_v1_old", "v1"])
    def test_other_folders_are_no_versions(self, kernels, name):
        plant(kernels, "cutile", "toy", name)
        assert registry.versions() == ()

    def test_nor_are_other_languages_or_folders_without_the_module(self, kernels):
        plant(kernels, "triton", "toy", "toy")
        (kernels / "cutile" / "mla" / "toy" / "toy").mkdir(parents=True)
        (kernels / "cutile" / "mla" / "toy" / "devlog.md").touch()
        assert registry.versions() == ()

    def test_the_projects_designs(self):
        designs = {d: [v.version for v in vs] for d, vs in registry.designs().items()}
        assert designs["flash_attention"][:3] == ["v0", "v1", "v2"]
        assert designs["flash_mla"][:3] == ["v0", "v1", "v2"]
        assert designs["flash_mla_split_kv"][:2] == ["v0", "v1"]
        assert designs["mla_var6_plus"][:5] == ["v0", "v1", "v2", "v3", "v4"]


class TestFind:
    @pytest.mark.parametrize("version", [None, "v0", "base"])
    def test_the_base_has_three_names(self, version):
        assert registry.find("flash_mla", version).version == "v0"

    def test_hyphens_do_for_underscores(self):
        assert registry.find("flash-mla-split-kv", "v1").key == "flash_mla_split_kv v1"

    def test_an_unknown_design_or_version_lists_all_and_the_nearest(self):
        with pytest.raises(UnknownNameError) as design:
            registry.find("flash_mal")
        known = ", ".join(sorted(registry.designs()))
        assert str(design.value).startswith(f"unknown design 'flash_mal' (known: {known})")
        assert str(design.value).endswith("did you mean 'flash_mla'?")
        with pytest.raises(UnknownNameError, match=r"unknown version of flash_mla 'v1x' .*'v1'\?"):
            registry.find("flash_mla", "v1x")

    def test_select(self):
        assert registry.select() == list(registry.versions())
        assert registry.select("flash-mla") == registry.designs()["flash_mla"]
        assert registry.select("flash_mla", "v1") == [registry.find("flash_mla", "v1")]
        with pytest.raises(UnknownNameError):
            registry.select("nothing")


class TestPlanClass:
    @pytest.mark.parametrize("version", registry.versions(), ids=lambda v: v.name)
    def test_each_version_defines_one_with_every_option_explained(self, version):
        plan_class = version.plan_class()
        assert issubclass(plan_class, KernelPlan)
        assert plan_class.__doc__
        tilings = [f for t in plan_class.tiling_types.values() for f in dataclasses.fields(t)]
        for field in [*plan_class.option_fields(), *tilings]:
            assert field.metadata["help"], field.name

    @pytest.mark.parametrize(
        "body",
        [
            "",
            "from runtime.toys import ToyPlan as Plan\n",
            "from runtime.toys import ToyPlan\nclass V1Plan(ToyPlan): pass\n",
            "Plan = 3\n",
            "from mla_var3.runtime import KernelPlan\nclass Plan(KernelPlan): pass\n",
        ],
        ids=["none", "another's", "another name", "no class", "abstract"],
    )
    def test_a_module_without_a_plan_of_its_own_is_refused(self, body, tmp_path, monkeypatch):
        (tmp_path / "planless.py").write_text(body)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, "planless", raising=False)
        version = dataclasses.replace(registry.find("flash_mla"), module="planless")
        with pytest.raises(PlanError, match="planless defines no concrete KernelPlan named Plan"):
            version.plan_class()


class TestPlanOf:
    def test_fields_that_are_left_out_have_their_defaults(self):
        version = registry.find("flash_mla")
        plan = version.plan_of({"b": 3, "s": 2})
        assert plan == version.plan_class()(b=3, s=2)
        assert version.plan_of(plan.problem()) == plan

    @pytest.mark.parametrize("name", ["heads", "tilings", "machine"])
    def test_a_field_that_no_problem_states(self, name):
        with pytest.raises(UnknownNameError, match=f"unknown field '{name}' .known: dtype, b, "):
            registry.find("flash_mla").plan_of({name: 3})


class TestSources:
    @pytest.fixture
    def design(self, kernels):
        package = "mla_var3.kernel.cutile.mla"
        folder = plant(kernels, "cutile", "toy", "toy", text=f"from {package}.toy import common\n")
        (folder / "common.py").write_text(
            f"import {package}.other.deep.tool\nimport numpy.linalg\nfrom . import near\n"
        )
        (folder / "near.py").write_text("from ..other.deep import side as s\n")
        deep = kernels / "cutile" / "mla" / "other" / "deep"
        deep.mkdir(parents=True)
        for name in ("tool", "side", "unused", "__init__"):
            (deep / f"{name}.py").touch()
        (folder / "toy" / "stage.py").touch()
        (folder / "devlog.md").touch()
        return folder

    def test_all_files_of_the_version_and_what_they_import(self, kernels, design):
        (version,) = registry.versions()
        found = [
            f.relative_to(kernels / "cutile" / "mla").as_posix() for f in version.source_files()
        ]
        assert found == [
            "other/deep/__init__.py",
            "other/deep/side.py",
            "other/deep/tool.py",
            "toy/common.py",
            "toy/near.py",
            "toy/toy/__init__.py",
            "toy/toy/stage.py",
            "toy/toy/toy.py",
        ]

    @pytest.mark.parametrize("name", ["toy/toy.py", "toy/stage.py", "common.py", "near.py"])
    def test_any_change_to_them_changes_it(self, design, name):
        (version,) = registry.versions()
        before = version.sources()
        assert version.sources() == before
        with (design / name).open("a") as file:
            file.write("# more\n")
        assert version.sources() != before

    def test_other_files_do_not(self, kernels, design):
        (version,) = registry.versions()
        before = version.sources()
        (design / "devlog.md").write_text("### v0")
        (kernels / "cutile/mla/other/deep/unused.py").write_text("x = 1")
        assert version.sources() == before
        (design / "toy" / "another.py").touch()
        assert version.sources() != before

    def test_text_that_moves_between_files_changes_it(self, design):
        (version,) = registry.versions()
        (design / "toy" / "stage.py").write_text("x")
        before = version.sources()
        (design / "toy" / "stage.py").write_text("")
        (design / "toy" / "stagf.py").write_text("x")
        assert version.sources() != before

    def test_versions_differ(self):
        hashes = {tuple(v.sources().items()) for v in registry.versions()}
        assert len(hashes) == len(registry.versions())

    def test_shared_stages_count(self):
        files = {f.name for f in registry.find("mla_var6_plus", "v4").source_files()}
        assert {"common.py", "mla_var6_plus_v4.py", "latent.py"} <= files
        assert "mla_var6_plus_v3.py" not in files


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def f(:\n", r"cannot be imported: SyntaxError: invalid syntax .*line 1"),
        ("\nimport no_such_module\n", r"ModuleNotFoundError: No module .* line 2\)"),
        ("x = 1 / 0\n", r"ZeroDivisionError: division by zero \(.*broken_version.py, line 1\)"),
    ],
)
def test_a_version_that_cannot_be_imported_is_one_sentence(source, said, tmp_path, monkeypatch):
    (tmp_path / "broken_version.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "broken_version", raising=False)
    version = dataclasses.replace(registry.find("flash_mla"), module="broken_version")
    with pytest.raises(PlanError, match=said) as error:
        version.plan_class()
    assert "\n" not in str(error.value)


def test_sources_that_are_not_python_are_one_sentence(tmp_path):
    (tmp_path / "broken.py").write_text("def f(:\n")
    version = dataclasses.replace(registry.find("flash_mla"), path=tmp_path / "broken.py")
    with pytest.raises(PlanError, match=r"broken.py is not Python: invalid syntax, line 1"):
        version.source_files()


def test_a_language_that_does_not_exist_selects_nothing_silently():
    with pytest.raises(UnknownNameError, match="unknown language 'foo'"):
        registry.select(language="foo")
