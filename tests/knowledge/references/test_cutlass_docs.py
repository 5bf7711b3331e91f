"""CUTLASS's documents become Markdown, on a small repository of the same shape."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from mla_var3.errors import ToolchainError
from mla_var3.examples import pin
from mla_var3.knowledge.references import asking, cutlass_docs

FILES = {
    "media/docs/cpp/layout.md": "# Layouts\n\n[there](deeper/more.md) [code](../../../include/"
    "cutlass/thing.h) [gone](nowhere.md) ![p](../../images/a.png) [start](index#Start) "
    "[deep](../../examples/) [one up](../examples/other.py)\n",
    "media/docs/cpp/deeper/more.md": "# More\n\n[back](../layout.md) `[no](link.md)`\n",
    "media/docs/cpp/index.rst": "Start\n=====\n\n.. toctree::\n   :maxdepth: 2\n\n"
    "   Layouts<layout.md>\n   deeper/more\n",
    "media/images/a.png": "x",
    "include/cutlass/thing.h": "/*! \\file \\brief Things. */\nnamespace cutlass {\n"
    "/// A thing of T.\ntemplate <typename T>\nstruct Thing {\n  /// Its size.\n"
    "  int size(int *of) const;\n};\n/// Adds.\nint add(int a, int b);\n}\n",
    "examples/other.py": "x = 1\n",
}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout of ours whose pin names a small repository."""
    repository, root = tmp_path / "cutlass", tmp_path / "ours"
    for name, text in FILES.items():
        (repository / name).parent.mkdir(parents=True, exist_ok=True)
        (repository / name).write_text(text)
    git = ("git", "-C", str(repository), "-c", "user.name=x", "-c", "user.email=x@y")
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "x")):
        subprocess.run([*git, *words], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    (root / "third_party").mkdir(parents=True)
    (root / pin.PIN).write_text(
        'address = "https://example.org/o/cutlass"\ntag = "v4.7.0"\nlicense = "BSD"\n'
        f'commit = "{head.stdout.strip()}"\nfolders = ["examples"]\n'
        'documents = ["include", "media/docs/cpp"]\n'
    )
    monkeypatch.setenv(pin.CHECKOUT_VARIABLE, str(repository))
    monkeypatch.chdir(root)  # Doxygen shortens paths below the folder that it runs in.
    return root


def needs(program: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"needs {program}")


@needs("pandoc")
@needs("doxygen")
def test_guides_and_headers_become_one_tree(root: Path) -> None:
    report = cutlass_docs.convert(root, lambda _: None)
    tree = root / cutlass_docs.FOLDER
    assert (report.sources, report.guides, report.headers, report.lost) == (4, 3, 1, [])
    assert report.dead == ["docs/cpp/layout.md: nowhere.md"]
    guide = (tree / "docs/cpp/layout.md").read_text()
    assert "[there](deeper/more.md)" in guide
    assert f"/blob/{pin.load(root).commit}/include/cutlass/thing.h)" in guide
    assert f"/blob/{pin.load(root).commit}/media/images/a.png)" in guide
    assert "[start](index.md#Start)" in guide
    assert f"/tree/{pin.load(root).commit}/examples)" in guide
    assert f"/blob/{pin.load(root).commit}/examples/other.py)" in guide
    assert "[Layouts](layout.md)" in (tree / "docs/cpp/index.md").read_text()
    assert "(deeper/more.md)" in (tree / "docs/cpp/index.md").read_text()
    header = (tree / "api/include/cutlass/thing.h.md").read_text()
    for said in ("# include/cutlass/thing.h", "## struct `cutlass::Thing`", "A thing of T.",
                 "`template <typename T>`", "- `int size(int *of) const`: Its size.",
                 "- `int add(int a, int b)`: Adds."):  # fmt: skip
        assert said in header, header
    assert "[Layouts](docs/cpp/layout.md)" in (tree / "index.md").read_text()
    assert "nowhere.md" in (tree / cutlass_docs.REPORT).read_text()
    (found,) = asking.answers("thing adds", root, 1)
    assert found.where.startswith(f"{cutlass_docs.FOLDER}/api/include/cutlass/thing.h.md:")


@needs("pandoc")
def test_without_doxygen_each_header_is_lost_and_said_so(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    which = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "doxygen" else which(name))
    report = cutlass_docs.convert(root, lambda _: None)
    assert report.lost == ["include/cutlass/thing.h: Doxygen is not installed"]
    assert report.guides == 3


def test_without_pandoc_nothing_is_begun(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setitem(sys.modules, "pypandoc", None)
    with pytest.raises(ToolchainError, match="needs pandoc"):
        cutlass_docs.convert(root, lambda _: None)
    assert not (root / cutlass_docs.FOLDER).exists()
