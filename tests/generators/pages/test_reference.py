"""The reference is derived: every module, flag, session and field, and nothing else."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import re
from typing import Literal

import pytest

from generators.pages import reference
from generators.pages.reference import flags_of, run_flags, schema_type, sessions_of, type_text
from mla_var3 import evidence
from mla_var3.app import options
from mla_var3.errors import KnowledgeError
from mla_var3.runtime import registry
from tests.generators.checking import ROOT, dead_links, see


@pytest.fixture(scope="module")
def found(site):
    return {page.path: page for page in reference.pages(site)}


def test_links_resolve(found, pages):
    assert list(dead_links([p for p in found.values() if p.path.endswith(".md")], pages)) == []


def test_every_public_module_is_documented_once(found):
    named = re.findall(r"^::: (\S+)", "\n".join(str(p.content) for p in found.values()), re.M)
    assert len(named) == len(set(named)) > 40
    for name in named:
        assert importlib.util.find_spec(name) is not None
    source = ROOT / "src" / "mla_var3"
    public = {
        ".".join(("mla_var3", *file.relative_to(source).with_suffix("").parts))
        for file in source.rglob("*.py")
        if not any(part.startswith("_") for part in file.relative_to(source).parts)
        and file.relative_to(source).parts[0] not in ("kernel", "conf")
    }
    assert set(named) == public


def test_modules_have_places(site):
    places = reference.places(site)
    assert places["src/mla_var3/runtime/plan.py"] == (
        "reference/api/runtime.md#mla_var3.runtime.plan"
    )
    assert places["src/mla_var3/evidence/__init__.py"] == reference.SCHEMA


@pytest.mark.parametrize("version", registry.versions(), ids=lambda v: v.key)
def test_flags_are_those_that_the_command_line_takes(version):
    plan_class = version.plan_class()
    flags = list(flags_of(version))
    argv = []
    for flag in flags:
        name = flag.name.split(",")[0]
        if flag.type == "flag":
            argv.append(name if flag.default == "true" else name.replace("--", "--no_", 1))
        elif flag.default:
            argv.append(f"{name}={flag.default}")
    plan, _ = options.parse(plan_class, argv)
    assert plan.problem() == plan_class().problem()
    for stage in plan_class.tiling_types:
        assert plan.tiling(stage) == plan_class().tiling(stage)
    tilings = sum(len(dataclasses.fields(t)) for t in plan_class.tiling_types.values())
    assert len(flags) == len(plan_class.option_fields()) + tilings
    assert all(flag.help for flag in flags)


def test_a_design_s_page_has_every_flag_of_every_version(site, found):
    for design, versions in site.designs().items():
        text = found[f"reference/cli/{reference._file(versions)}"].content
        for version in versions:
            for flag in flags_of(version):
                assert f"| `{flag.name}` |" in text
        assert f"nox -s profile -- {design} {versions[-1].version} --help" in text


def test_run_flags(found):
    flags = run_flags()
    assert {flag.name.removeprefix("--") for flag in flags} == {
        field.name for field in dataclasses.fields(options.RunOptions)
    }
    by_name = {flag.name: flag for flag in flags}
    assert "annotation" in by_name["--prof_type"].type
    assert by_name["--bench_runs"].default == "50"
    assert by_name["--check"].type == "flag"
    index = found["reference/cli/index.md"].content
    for flag in flags:
        assert f"| `{flag.name}` |" in index


def test_sessions(found):
    sessions = sessions_of(ROOT / "noxfile.py")
    assert {"tests", "lint", "types", "check", "profile", "compare", "clone"} <= set(sessions)
    assert "install" not in sessions
    index = see(found["reference/cli/index.md"]).text
    for name, text in sessions.items():
        assert name in index
        assert " ".join(text.split()) in " ".join(index.split())


def test_a_session_without_words_is_an_error(tmp_path):
    file = tmp_path / "noxfile.py"
    file.write_text("import nox\n\n@nox.session\ndef silent(session):\n    pass\n")
    with pytest.raises(KnowledgeError, match="nox session silent does not say"):
        sessions_of(file)


@pytest.mark.parametrize(
    ("hint", "text"),
    [
        (int, "int"),
        (bool, "flag"),
        (int | None, "int or none"),
        (Literal["bf16", "fp16"], "bf16 or fp16"),
        (Literal["a", "b"] | None, "a or b or none"),
    ],
)
def test_types_in_words(hint, text):
    assert type_text(hint) == text


def test_schema_names_every_field_of_every_model(found):
    schema = evidence.json_schema()
    page = found[reference.SCHEMA].content
    for name, model in {schema["title"]: schema, **schema["$defs"]}.items():
        part = page.split(f"\n## {name}\n")[1].split("\n## ")[0]
        rows = re.findall(r"^\| `(\w+)` \|", part, re.M)
        assert rows == list(model["properties"])
    assert json.loads(found["reference/record.schema.json"].content) == schema


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"$ref": "#/$defs/Git"}, "[Git](#git)"),
        ({"const": 1}, "`1`"),
        ({"type": "array", "items": {"type": "integer"}}, "list of integer"),
        ({"type": "array"}, "list"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "string or null"),
        ({"type": "object", "additionalProperties": {"type": "number"}}, "mapping to number"),
        ({"type": "object"}, "object"),
        ({"type": "string", "pattern": "a|b"}, "string matching <code>a&#124;b</code>"),
        ({}, "any"),
    ],
)
def test_schema_types(spec, text):
    assert schema_type(spec) == text
