"""A campaign's versions copy the kernel's file with the adopted one, and what it needs beside."""

from __future__ import annotations

import pytest

from mla_var3.app import campaign
from mla_var3.campaign import adopted, contract, copying, stages, workspace
from mla_var3.errors import InputError
from tests.campaign.files import ADD, TORCH

ACCEPT = "--accept=static_power,energy_per_flop,energy_per_byte"
PLAN = ["--hypothesis=sums in double", "--change=sum in double", "--lines=1"]
KERNEL = """
import scaling


def product(a, b):
    return scaling.one * (a @ b)
"""
#: As ``adopt`` drafts it, its reference written.
DRAFT = """
from __future__ import annotations

import torch

from mla_var3.campaign import definitions

theirs = definitions("theirs/product.py")


def inputs(device, m=8, n=16):
    return {"a": torch.randn(m, n, device=device), "b": torch.randn(n, m, device=device)}


def reference(a, b):
    return a.double() @ b.double()


def launch(a, b):
    return theirs.product(a, b)
"""
#: By hand: the kernel is imported, and a package beside it too.
IMPORTING = DRAFT.replace('theirs = definitions("theirs/product.py")', "import product") + "\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr("mla_var3.paths.out_dir", lambda: tmp_path / "out")
    return tmp_path


def drafted(folder):
    (folder / "theirs").mkdir()
    (folder / "theirs" / "product.py").write_text(KERNEL)
    (folder / "theirs" / "scaling.py").write_text("one = 1\n")
    (folder / "draft.py").write_text(DRAFT)
    return folder / "draft.py"


def imported(folder):
    (folder / "numbers_of").mkdir()
    (folder / "numbers_of" / "__init__.py").write_text("one = 1\n")
    (folder / "product.py").write_text(KERNEL.replace("scaling", "numbers_of"))
    (folder / "draft.py").write_text(IMPORTING.replace("theirs.product", "product.product"))
    return folder / "draft.py"


def begun(file):
    assert campaign.main(["init", "mine", str(file), ACCEPT]) == 0
    assert campaign.main(["gate", "mine", "v0"]) == 0
    assert campaign.main(["plan", "mine", *PLAN]) == 0
    return workspace.find("mine")


def edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.parametrize("make", [drafted, imported])
def test_a_version_is_the_kernel_and_not_only_the_draft(folder, make):
    file = make(folder)
    found = begun(file)
    first, second = found.version("v0"), found.version("v1")
    assert (first.name, second.name) == ("product.py", "product.py")
    assert first.parent.name == "mine_v0"
    assert found.subject.name("v7") == "versions/mine_v7/mine_v7.py"
    assert stages.following(found).file.endswith("versions/mine_v1/product.py")
    before = first.read_text()
    edit(second, "(a @ b)", "(a.double() @ b.double())")
    assert found.difference("v0", "v1") == (1, 1)
    assert campaign.main(["gate", "mine", "v1"]) == 0
    entry = found.memory.read("v1")
    assert (entry.verdict, entry.diff.lines) == ("not timed", 2)
    assert entry.subject == "versions/mine_v1/mine_v1.py"
    assert first.read_text() == before
    assert found.subject.is_kept("v1")
    edit(second, "(a.double() @ b.double())", "(a @ b)")
    assert not found.subject.is_kept("v1")  # Its records are of the kernel as it was.


@pytest.mark.parametrize("make", [drafted, imported])
def test_two_versions_in_one_process_run_their_own_kernels(folder, make):
    found = begun(make(folder))
    edit(found.version("v1"), "(a @ b)", "(2 * a @ b)")
    assert "relative error" in adopted.adopt(found.subject.main("v1")).check({}).wrong
    assert adopted.adopt(found.subject.main("v0")).check({}).wrong == ""
    assert "relative error" in adopted.adopt(found.subject.main("v1")).check({}).wrong


def test_the_original_is_read_no_more_but_for_packages(folder):
    file = imported(folder)
    found = begun(file)
    (folder / "product.py").unlink()
    file.unlink()
    assert adopted.adopt(found.subject.main("v1")).check({}).wrong == ""
    assert "sys.path.append" in found.subject.main("v1").read_text()


def test_a_file_by_itself_stays_one(folder):
    (folder / "alone.py").write_text(TORCH)
    found = begun(folder / "alone.py")
    assert found.version("v1") == found.root / "versions" / "mine_v1.py"
    assert found.version("v1").read_text() == TORCH


def test_the_file_to_edit_has_the_kernels(tmp_path):
    (tmp_path / "kernels.py").write_text(ADD)
    (tmp_path / "sizes.py").write_text("n = 8\n")
    main = tmp_path / "main.py"
    main.write_text("import sizes\nimport kernels\n")
    assert copying.kernel_file(main) == tmp_path / "kernels.py"
    main.write_text("import sizes\n" + ADD)
    assert copying.kernel_file(main) == main


def test_names_are_replaced_wherever_they_stand(tmp_path):
    for name in ("one.py", "two.py"):
        (tmp_path / "sub").mkdir(exist_ok=True)
        (tmp_path / "sub" / name).write_text("x = 1\n")
    main = tmp_path / "main.py"
    main.write_text(
        "f = definitions\n"
        "é = [definitions('sub/one.py'), definitions('sub/'\n    'two.py')]\n"
        "other = 'sub/one.py'\n"
    )
    copying.bring(main, tmp_path / "copies", "mine_v0")
    told = (tmp_path / "copies" / "mine_v0" / "mine_v0.py").read_text()
    assert "[definitions('one.py'), definitions('two.py')]\nother = 'sub/one.py'\n" in told


def test_what_a_file_finds_by_its_own_place_stays_there(folder):
    """As CUTLASS's examples do, which put a folder above them on the path."""
    file = drafted(folder)
    text = "import sys, os\nsys.path.insert(0, os.path.dirname(__file__))\n"
    edit(folder / "theirs" / "product.py", "import scaling", f"{text}import scaling")
    found = begun(file)
    own = found.version("v0")
    assert [f.name for f in sorted(own.parent.glob("*.py"))] == ["mine_v0.py", "product.py"]
    assert f"dirname('{folder / 'theirs' / 'product.py'}')" in own.read_text()
    edit(found.version("v1"), "(a @ b)", "(2 * a @ b)")
    assert "relative error" in adopted.adopt(found.subject.main("v1")).check({}).wrong


def test_two_files_of_one_name_are_refused(folder):
    file = drafted(folder)
    (folder / "product.py").write_text("one = 2\n")
    edit(file, "import torch", "import product\nimport torch")
    with pytest.raises(InputError, match="has the name of another file that"):
        campaign.main(["init", "mine", str(file), ACCEPT])
    assert not (folder / "out" / "campaigns" / "mine" / "campaign.json").exists()


def test_records_of_a_draft_end_with_its_kernels_text(folder):
    file = drafted(folder)
    found = adopted.adopt(file)
    adopted.write(adopted.records(found, found.check({}), print))
    assert adopted.records_of(file)
    edit(folder / "theirs" / "scaling.py", "1", "1  # one")
    assert not adopted.records_of(file)


def test_a_cycle_of_imports_ends(tmp_path):
    (tmp_path / "a.py").write_text("import b\n")
    (tmp_path / "b.py").write_text("import a\n")
    assert contract.kind_of(tmp_path / "a.py") == "torch"
