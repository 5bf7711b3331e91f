"""A process imports and reads files as other texts."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path

import pytest

from mla_var3 import forked
from mla_var3.app import edited
from mla_var3.app.judging import sentence


def _said(folder: Path, texts: dict[str, str]) -> dict[str, tuple[str, str, str]]:
    """By module what it says when it is played so, its source, and what is read of its file."""
    for name, text in texts.items():
        edited.play(folder / f"{name}.py", text)
    importlib.invalidate_caches()
    found = {}
    for file in sorted(folder.glob("*.py")):
        module = importlib.import_module(file.stem)
        read = file.read_text(encoding="utf-8")
        found[file.stem] = module.say(), inspect.getsource(module.say), read
    return found


@pytest.mark.parametrize("played", [(), ("one",), ("one", "two"), ("two", "one", "three")])
def test_each_file_that_is_played_is_imported_as_its_text(
    played: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "sources"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    whole = {name: f"def say():\n    return 'whole {name}'\n" for name in ("one", "two", "three")}
    for name, text in whole.items():
        (folder / f"edited_{name}.py").write_text(text)
    texts = {name: whole[name].replace("whole", "edited") for name in played}
    work = {0: lambda: _said(folder, {f"edited_{name}": text for name, text in texts.items()})}
    runs = forked.run(work, folder=tmp_path, workers=1, timeout=60.0, explain=sentence)
    ((_, ended),) = runs
    assert ended.result is not None, ended.failure
    for name, text in (whole | texts).items():
        said = "edited" if name in played else "whole"
        assert ended.result[f"edited_{name}"] == (f"{said} {name}", text, text)
    for name, text in whole.items():
        assert (folder / f"edited_{name}.py").read_text() == text
