import subprocess

import pytest

from mla_var3.errors import KnowledgeError, ToolchainError
from mla_var3.examples import fetch, pin
from tests.examples.conftest import FILES, write_pin
from tests.repository import git


def test_only_the_pinned_folders_come(root, tree, upstream):
    found = {p.relative_to(tree.root).as_posix() for p in tree.root.rglob("*") if p.is_file()}
    wanted = {f"{pin.EXAMPLES}/{path}" for path in FILES} | {"media/docs/page.md", pin.STAMP}
    assert found == wanted
    assert pin.tree(root).pin.commit == upstream[1]
    for path, text in FILES.items():
        assert tree.file(path).read_text() == text


def test_a_new_pin_replaces_the_tree(root, tree, upstream):
    (upstream[0] / "media/docs/page.md").write_text("other words\n")
    git(upstream[0], "commit", "--quiet", "-am", "next")
    write_pin(root, git(upstream[0], "rev-parse", "HEAD"), "v1.2.4")
    with pytest.raises(KnowledgeError, match=r"is commit .*, and .* pins v1.2.4 .* examples -- fe"):
        pin.tree(root)
    assert fetch.fetch(root).file("media/docs/page.md").read_text() == "other words\n"
    assert [p.name for p in (root / "third_party").iterdir() if p.name.startswith(".")] == []


def test_a_checkout_without_the_commit_leaves_the_old_tree(root, tree):
    write_pin(root, "0" * 40)
    with pytest.raises(KnowledgeError, match=r"lacks commit 000000000000 of v1.2.3; fetch"):
        fetch.fetch(root)
    assert tree.file("media/docs/page.md").is_file()


def test_a_checkout_that_is_none(root, monkeypatch):
    monkeypatch.setenv("CUTLASS_DIR", str(root / "nowhere"))
    with pytest.raises(KnowledgeError, match="nowhere is not a folder"):
        fetch.fetch(root)


def test_without_network_the_sentence_names_the_variable(root, monkeypatch):
    monkeypatch.delenv("CUTLASS_DIR")

    def fail(folder, *arguments, stdin=None):
        code = 0 if arguments[0] == "init" else 128
        return subprocess.CompletedProcess(arguments, code, b"", b"no\nroute")

    monkeypatch.setattr(fetch, "_git", fail)
    with pytest.raises(ToolchainError, match=r"cannot be fetched \(no route\); set CUTLASS_DIR"):
        fetch.fetch(root)
    assert not (root / pin.FOLDER).exists()


def test_without_git_the_sentence_says_so(root, monkeypatch):
    monkeypatch.setattr(fetch.shutil, "which", lambda _name: None)
    with pytest.raises(ToolchainError, match="needs git"):
        fetch.fetch(root)


def test_nothing_fetched(root):
    with pytest.raises(KnowledgeError, match="holds no fetched tree; run `nox -s examples -- fetc"):
        pin.tree(root)


def test_nothing_fetched_where_a_checkout_is_named(root, monkeypatch):
    monkeypatch.setenv("CUTLASS_DIR", "some/where")
    with pytest.raises(KnowledgeError, match="the pinned commit from CUTLASS_DIR=some/where"):
        pin.tree(root)


def test_a_file_that_the_tree_lacks(tree):
    with pytest.raises(KnowledgeError, match=r"CUTLASS v1.2.3 has no cute/hopper/gone.py"):
        tree.file("cute/hopper/gone.py")
    with pytest.raises(KnowledgeError, match="has no"):
        tree.file("../../../../upstream/other.txt")


@pytest.mark.parametrize("text", ["", "tag = 1", 'address = "ftp://x/y"'])
def test_an_unsound_pin(root, text):
    (root / pin.PIN).write_text(text)
    with pytest.raises(KnowledgeError, match=r"third_party/cutlass.toml"):
        pin.load(root)


def test_links_lead_to_the_pinned_lines(tree, upstream):
    address = tree.address("a/b.py", 7)
    assert address == f"https://example.org/cutlass/blob/{upstream[1]}/a/b.py#L7"
