"""The references are complete, and say so when a package changes."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from mla_var3.knowledge.references import holding, model
from mla_var3.knowledge.references.__main__ import main
from mla_var3.knowledge.references.model import Installed, Name, Reference
from mla_var3.paths import repo_root

REFERENCES = {found.key: found for found in model.load_all(repo_root())}


@pytest.fixture(scope="module", params=REFERENCES)
def held(request: pytest.FixtureRequest) -> tuple[Reference, Installed]:
    reference = REFERENCES[request.param]
    return reference, holding.read(reference, repo_root(), observe=False)


def test_each_reference_describes_its_installed_package(held):
    reference, now = held
    assert list(holding.faults(reference, now)) == []
    assert now.version == reference.installed.version


def test_what_an_update_adds_drops_or_changes_is_a_fault(held):
    reference, now = held
    gone, moved, *_ = sorted(now.names)
    names = {key: name for key, name in now.names.items() if key != gone}
    names[moved] = names[moved].model_copy(update={"signature": "(another)"})
    names["ct.brand_new"] = Name(kind="function")
    found = " ".join(holding.faults(reference, now.model_copy(update={"names": names})))
    assert "ct.brand_new is new" in found
    assert "ct.brand_new of" in found  # not described
    assert f"{gone} is gone" in found
    assert f"describes {gone}" in found
    assert f"{moved} of" in found


def test_an_argument_that_is_not_taken_and_a_successor_that_nothing_describes_are_faults(held):
    reference, now = held
    detail = model.Detail(args={"brand_new": "what it is"}, instead="ct.nowhere")
    part = reference.parts[0]
    entry = next(entry for entry in part.entries if "**" not in entry.name.signature)
    wrong = dataclasses.replace(part, entries=(dataclasses.replace(entry, detail=detail),))
    told = list(holding.faults(dataclasses.replace(reference, parts=(wrong,)), now))
    assert any(f"{entry.key} takes no brand_new" in line for line in told)
    assert any(f"ct.nowhere, in place of {entry.key}, is not described" in line for line in told)


@pytest.mark.parametrize(
    ("signature", "names"),
    [
        ("", set()),
        ("()", set()),
        ("(x, /, axis=None, *, keepdims=False)", {"x", "axis", "keepdims"}),
        ("(value, order=(0, 1), kind=Kind.ONE, **kwargs)", {"value", "order", "kind"}),
    ],
)
def test_parameters_are_read_from_a_signature(signature, names):
    assert holding.parameters(signature) == names


def test_what_users_meet_first_says_what_it_takes_and_gives():
    entries = {entry.key: entry for found in REFERENCES.values() for entry in found.entries()}
    for key in ("cute.nvgpu.cpasync.tma_partition", "cute.local_tile", "ct.argmax", "ct.load"):
        detail = entries[key].detail
        assert detail.gives
        assert detail.args
    assert sum(1 for entry in entries.values() if entry.detail != model.Detail()) >= 60


def test_the_options_of_a_compile_are_those_of_the_package():
    compiler = pytest.importorskip("cutlass.base_dsl.compiler")
    from cutlass import cute

    (note,) = (e.note for e in REFERENCES["cute"].entries() if e.key == "cute.compile")
    parser, *_ = compiler._build_string_api_tables()
    known = {flag for action in parser._actions for flag in action.option_strings}
    table = "\n".join(line for line in note.splitlines() if line.startswith("| "))
    flags = set(re.findall(r"--[a-z-]{4,}", table))
    assert len(flags) >= 11
    assert flags <= known
    for name in re.findall(r"`cute\.(\w+)\(", table):
        assert hasattr(cute, name)
    assert f"`cute.OptLevel(1)` | {cute.OptLevel._default} |" in table
    assert parser.get_default("ptxas_options") == ""
    assert f"| `{cute.NvdisasmOptions._default}` |" in table


def test_every_operation_of_cutile_has_a_snippet():
    reference = REFERENCES["cutile"]
    bare = [
        dataclasses.replace(part, cells=part.cells[1:]) if part.key == "memory" else part
        for part in reference.parts
    ]
    told = list(holding.faults(dataclasses.replace(reference, parts=tuple(bare)),
                               reference.installed))  # fmt: skip
    assert any("ct.load has no snippet" in line for line in told)
    assert not any("ct.gather" in line for line in told)


def test_words_are_ours():
    """No sentence of a docstring stands in the references."""
    import cuda.tile._stub as stub

    theirs = " ".join(Path(stub.__file__).read_text().split())
    for entry in REFERENCES["cutile"].entries():
        for sentence in entry.says.split(". "):
            if len(sentence) > 40:
                assert sentence not in theirs, entry.key


def test_the_command_counts_names_and_faults(capsys):
    assert main(["check", "cutile"]) == 0
    assert "names of cuda-tile" in capsys.readouterr().out


def test_an_unknown_reference_is_named(capsys):
    from mla_var3.errors import UnknownNameError

    with pytest.raises(UnknownNameError, match="cutlas"):
        main(["check", "cutlas"])


def test_the_file_of_a_package_reads_back_as_written(held, tmp_path):
    reference, _ = held
    (tmp_path / model.INSTALLED).write_text(model.dump(reference.installed))
    assert model.read_installed(tmp_path, tmp_path) == reference.installed
    committed = (repo_root() / model.FOLDER / reference.key / model.INSTALLED).read_text()
    assert model.dump(reference.installed) == committed
