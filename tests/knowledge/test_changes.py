"""What changed between two versions, on small versions and on the project's own."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mla_var3.knowledge.changes import Comparison, compare, folder_of, place_of
from mla_var3.runtime import definitions, registry

BASE = """\"\"\"Toy, base version.\"\"\"

from mla_var3.errors import PlanError
import toy_helper


class ToyPlan:
    rows = 16


def toy(x):
    return x + 1
"""
BLOCK = "".join(f"    step({i})\n" for i in range(5))


def versions(root: Path, *texts: dict[str, str]) -> Path:
    """A design whose versions hold these files, v0 first."""
    design = root / "lang" / "mla" / "toy"
    for number, files in enumerate(texts):
        folder = folder_of(design, f"v{number}")
        for name, text in files.items():
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
    return design


def changed(found: Comparison) -> list[str]:
    return [line.text for hunk in found.hunks for line in hunk.lines("changed")]


def test_a_copy_is_no_change_though_its_module_is_called_after_the_version(tmp_path):
    found = compare(versions(tmp_path, {"toy.py": BASE}, {"toy_v1.py": BASE}), "v0", "v1")
    assert found.files == ()


def test_code_that_moved_to_another_file_is_no_deletion(tmp_path):
    design = versions(
        tmp_path,
        {"toy.py": f"def run():\n{BLOCK}", "other.py": "x = 1\n"},
        {"toy_v1.py": "def run():\n    pass\n", "other.py": f"x = 1\n\n\ndef late():\n{BLOCK}"},
    )
    found = compare(design, "v0", "v1")
    assert not [text for text in changed(found) if "step(" in text]
    there = {line.file for line in found.moved.values()}
    assert there == {"toy.py", "other.py"}


def test_a_file_of_one_version_alone_is_told(tmp_path):
    design = versions(tmp_path, {"toy.py": BASE}, {"toy_v1.py": BASE, "new.py": "x = 1\n"})
    (file,) = (file for file in compare(design, "v0", "v1").files if file.path == "new.py")
    assert (file.before, file.after) == (None, "new.py")


def test_what_one_version_alone_takes_from_the_kit_is_new(tmp_path, monkeypatch):
    for module in (registry, definitions):
        monkeypatch.setattr(module, "kernels_dir", lambda: tmp_path)
    kit = "from mla_var3.kernel.lang.kit.steps import run, wait_turn\n\n\nclass Plan:\n    steps = "
    design = versions(tmp_path, {"toy.py": f"{kit}run\n"}, {"toy_v1.py": f"{kit}run, wait_turn\n"})
    (tmp_path / "lang/kit").mkdir()
    (tmp_path / "lang/kit/steps.py").write_text("def run(): ...\n\n\ndef wait_turn(): ...\n")
    found = compare(design, "v0", "v1")
    assert [(file.before, file.after) for file in found.files] == [("toy.py", "toy_v1.py")]
    place = place_of("wait_turn", found)
    assert place is not None
    assert place.text == "def wait_turn(): ..."
    assert "def run(): ..." not in changed(found)


def test_what_is_read_anew_follows_the_files(tmp_path):
    design = versions(tmp_path, {"toy.py": BASE}, {"toy_v1.py": BASE})
    assert compare(design, "v0", "v1").hunks == []
    (folder_of(design, "v1") / "toy_v1.py").write_text(BASE + "\nlate = 1\n")
    assert "late = 1" in changed(compare(design, "v0", "v1"))


lines = st.lists(st.sampled_from(["a = 1", "b = 2", "", "c = 3", "    # four"]), max_size=12)


@settings(max_examples=50)
@given(before=lines, after=lines)
def test_every_line_that_differs_stands_in_its_file(tmp_path_factory, before, after):
    root = tmp_path_factory.mktemp("kernels")
    texts = ["\n".join(text) for text in (before, after)]
    found = compare(versions(root, {"toy.py": texts[0]}, {"toy_v1.py": texts[1]}), "v0", "v1")
    files = {"v0": texts[0].splitlines(), "v1": texts[1].splitlines()}
    shown = {side: list(text) for side, text in files.items()}
    for hunk in found.hunks:
        for line in hunk.lines("changed", "moved"):
            assert files[line.side][line.number - 1] == line.text
            shown[line.side][line.number - 1] = "\0"
    # What is left on both sides is the same text.
    left, right = ([text for text in side if text != "\0"] for side in shown.values())
    assert left == right


# -- code that words point at ----------------------------------------------------------------------

LATER = """from elsewhere import lazy, other


def lazily(x):
    # lazy rows
    return lazy(x) + cute.arch.lazy_wait()


def lazy(x):
    early, late = x
    return [
        other,
    ]
"""


@pytest.mark.parametrize(
    ("name", "number"),
    [("lazy", 9), ("lazily", 4), ("late", 10), ("other", 1), ("cute.arch.lazy_wait", 6)],
)
def test_a_name_is_explained_where_it_is_defined_else_where_it_is_used(tmp_path, name, number):
    found = compare(versions(tmp_path, {"toy.py": ""}, {"toy_v1.py": LATER}), "v0", "v1")
    place = place_of(name, found)
    assert place is not None
    assert (place.side, place.number) == ("v1", number)


@pytest.mark.parametrize("name", ["laz", "arch.lazy", "absent"])
def test_a_part_of_a_name_is_not_the_name(tmp_path, name):
    found = compare(versions(tmp_path, {"toy.py": ""}, {"toy_v1.py": LATER}), "v0", "v1")
    assert place_of(name, found) is None


def test_a_name_that_is_gone_is_explained_where_it_was(tmp_path):
    found = compare(versions(tmp_path, {"toy.py": LATER}, {"toy_v1.py": "x = 1\n"}), "v0", "v1")
    place = place_of("lazily", found)
    assert place is not None
    assert place.side == "v0"
