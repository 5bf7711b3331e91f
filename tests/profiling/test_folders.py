"""A folder for bulk artefacts is a path or its text."""

from __future__ import annotations

import pytest

from mla_var3.profiling import folders
from mla_var3.runtime import KernelPlan, profiling, registry


@pytest.mark.parametrize("kind", [str, lambda path: path])
def test_a_folder_is_a_path_or_its_text(tmp_path, kind):
    version = registry.find("gemm", "v0")
    with folders.new_folder(version, "static", "m1", kind(tmp_path)) as made:
        (made / "x").write_text("x")
    assert made.is_relative_to(tmp_path / "profiles/static")
    (name,) = folders.below_out(folders.files(made), kind(tmp_path))
    assert name == (made / "x").relative_to(tmp_path).as_posix()


def test_every_door_takes_a_text(tmp_path):
    version = registry.find("gemm", "v0")
    plan: KernelPlan = version.plan_of({"m": 32, "n": 32, "k": 32})
    made = profiling.profile_plan(
        plan, "disabled", out_dir=str(tmp_path), version=version, results=tmp_path / "results"
    )
    assert made.ok
