from __future__ import annotations

import ast
import os
import tomllib
from pathlib import Path

import pytest
from pydantic import BaseModel

from mla_var3 import inputs
from mla_var3.errors import InputError, KnowledgeError


def test_a_file_is_read(tmp_path):
    path = tmp_path / "é.toml"
    path.write_text("a = 'ü'\n", encoding="utf-8")
    assert inputs.read_toml(path) == {"a": "ü"}
    path.write_text('{"a": [1]}', encoding="utf-8")
    assert inputs.read_json(path) == {"a": [1]}


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("missing", "cannot be read: No such file"),
        (".", "cannot be read"),
        ("/dev/zero", "is a pipe or a device"),
        ("a\0b", "cannot be read: embedded null"),
    ],
)
def test_what_is_no_file_is_one_sentence(path, said, tmp_path):
    with pytest.raises(InputError, match=said):
        inputs.read_text(tmp_path / path)


def test_a_pipe_that_nobody_writes_to_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="is a pipe or a device"):
        inputs.read_bytes(tmp_path / "pipe")


def test_a_file_larger_than_the_limit_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(inputs, "MAX_BYTES", 3)
    (tmp_path / "a").write_bytes(b"abc")
    assert inputs.read_bytes(tmp_path / "a") == b"abc"
    (tmp_path / "a").write_bytes(b"abcd")
    with pytest.raises(InputError, match="larger than 3 bytes"):
        inputs.read_bytes(tmp_path / "a")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\xff", "byte 0 is not UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        (b"9" * 5000, "not JSON: Exceeds the limit"),
        (b"{", "not JSON: Expecting"),
    ],
)
def test_what_is_not_json_is_one_sentence(content, said, tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=said):
        inputs.read_json(path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("a = " + "[" * 100_000, "nested too deeply"),
        ("a = " + "9" * 5000, "not TOML: Exceeds the limit"),
        ("a", "not TOML: Expected"),
    ],
)
def test_what_is_not_toml_is_one_sentence(content, said, tmp_path: Path):
    path = tmp_path / "a.toml"
    path.write_text(content)
    with pytest.raises(InputError, match=said):
        inputs.read_toml(path)


class TestFaultsAs:
    def test_what_cannot_be_read_keeps_its_reason_under_the_users_name(self, tmp_path):
        with (
            pytest.raises(KnowledgeError, match=r"^notes\.toml cannot be read: not TOML: "),
            inputs.faults_as(KnowledgeError, "notes.toml"),
        ):
            inputs.parsed(tomllib.loads, "=", str(tmp_path), "TOML")

    @pytest.mark.parametrize(("said", "place"), [({"size": "x"}, "size: "), ("x", "the head: ")])
    def test_what_a_schema_says_has_its_place(self, said, place):
        class Head(BaseModel):
            size: int

        with (
            pytest.raises(KnowledgeError, match=f"^notes.toml: {place}Input should be"),
            inputs.faults_as(KnowledgeError, "notes.toml", "the head"),
        ):
            Head.model_validate(said)


def test_the_mark_that_editors_of_windows_write_is_no_text(tmp_path):
    path = tmp_path / "marked"
    path.write_bytes(b"\xef\xbb\xbfa = 1\n")
    assert inputs.read_toml(path) == {"a": 1}
    assert ast.unparse(inputs.read_python(path)) == "a = 1"
    path.write_bytes(b"\xef\xbb\xbf[1]")
    assert inputs.read_json(path) == [1]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a = (\n", r"is not Python: '\(' was never closed, line 1"),
        (b"a = 1\nb = = 2\n", "is not Python: invalid syntax, line 2"),
        (b"a = '\0'", "is not Python: source code string cannot contain null bytes"),
        (b"(" * 500, "is not Python: too many nested parentheses, line 1"),
        (b"\xff", "byte 0 is not UTF-8"),
    ],
)
def test_what_is_not_python_is_one_sentence(content, said, tmp_path):
    (tmp_path / "a.py").write_bytes(content)
    with pytest.raises(InputError, match=said):
        inputs.read_python(tmp_path / "a.py")
