"""Tests of other libraries on our kernel: which cases run, and what becomes of each."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass

import pytest

from mla_var3.app import conformance, peers
from mla_var3.errors import KnowledgeError, TilingError, UnknownNameError, UsageError


@dataclass
class Case:
    name: str
    tiles: int
    error: BaseException | None = None

    def run(self) -> None:
        print("what their test says is not ours to show")
        if self.error is not None:
            raise self.error


@contextlib.contextmanager
def cases_of(checkout):
    """Stands for a shim; found by its name."""
    assert (checkout / "tests").is_dir()
    yield [
        Case("right", 1),
        Case("wrong", 2, AssertionError("o differs")),
        Case("refused", 2, TilingError("splits=3")),
        Case("not here", 1, pytest.skip.Exception("FA3 is not supported")),
        Case("large", 1000, RuntimeError("too large for an emulator")),
    ]


@pytest.fixture
def library(monkeypatch, tmp_path):
    (tmp_path / "checkout/tests").mkdir(parents=True)
    known = peers.Peer(
        repository="https://github.com/a/b", commit="c" * 40, license="MIT",
        cases=f"{__name__}:cases_of",
    )  # fmt: skip
    monkeypatch.setattr(peers, "peers", lambda: {"alib": known})
    monkeypatch.setattr(peers, "out_dir", lambda: tmp_path)
    return tmp_path


def run(library, *more: str) -> int:
    flags = ["--only=alib", f"--checkout={library / 'checkout'}", *more]
    return conformance.main(["--peers", *flags])


def test_every_case_has_its_outcome(library, capsys):
    assert run(library) == 1
    said = capsys.readouterr().out
    assert "4 of 5 cases; without a GPU only small ones are run, in the emulator" in said
    assert "failed: wrong: AssertionError: o differs" in said
    assert "not ours to show" not in said
    table = json.loads((library / "conformance/alib.json").read_text())
    assert [one["outcome"] for one in table["cases"]] == ["passed", "failed", "failed", "skipped"]
    assert table["cases"][2]["reason"] == "splits=3"
    assert (table["device"], table["of"]) == ("", 5)


def test_a_part_can_be_chosen(library, capsys):
    assert run(library, "--match=right") == 0
    assert "1 of 5 cases" in capsys.readouterr().out
    assert run(library, "--sample=2", "--match=r") == 1
    assert "2 of 5 cases" in capsys.readouterr().out
    assert run(library, "--tiles=1") == 0
    assert "1 passed, 1 skipped" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "error", "said"),
    [
        (["--only=nolib"], UnknownNameError, "nolib"),
        (["--checkout=x"], UsageError, "name it with --only"),
        (["--only=flashmla", "--sample=0"], UsageError, "--sample=0: at least 1"),
    ],
)
def test_what_cannot_be_run_is_refused(flags, error, said):
    with pytest.raises(error, match=said):
        conformance.main(["--peers", *flags])


def test_the_libraries_are_pinned():
    known = peers.peers()
    assert set(known) == {"flashmla", "flashinfer"}
    for peer in known.values():
        assert callable(peer.load())


def test_a_pin_that_is_not_sound(monkeypatch, tmp_path):
    (tmp_path / "third_party").mkdir()
    (tmp_path / "third_party/x.toml").write_text("[peer]\nrepository = 'r'\ncommit = 'short'\n")
    monkeypatch.setattr(peers, "repo_root", lambda: tmp_path)
    monkeypatch.setattr(peers, "relative", lambda path: path.name)
    with pytest.raises(KnowledgeError, match=r"x\.toml is not a peer"):
        peers.peers()
