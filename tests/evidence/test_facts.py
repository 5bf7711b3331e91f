"""Static facts: what a failed compile leaves out, and what follows from the figures."""

from __future__ import annotations

import subprocess
import sys

import pytest
from pydantic import TypeAdapter, ValidationError

from mla_var3.evidence import Remark, StaticFacts
from mla_var3.evidence.facts import Facts, kinds
from mla_var3.languages import languages
from mla_var3.languages.cute.facts import CuteFacts
from mla_var3.languages.cutile.facts import CutileFacts


def remark(line, message="m", count=1, file="kernels/k.py"):
    return Remark(
        file=file, line=line, kind="passed", category="memory", message=message, count=count
    )


def facts(**changes):
    values = {
        "kernel": "k",
        "arch": "sm_90",
        "registers": 168,
        "instruction_mix": {"FFMA": 3},
        "remarks": (remark(4), remark(4, "n"), remark(9), remark(4, file="src/x.py")),
    }
    return CutileFacts(**(values | changes))


def test_json_round_trip():
    assert CutileFacts.model_validate_json(facts().model_dump_json()) == facts()
    assert "error" not in facts().model_dump()


def test_failed_facts_serialize_no_figures():
    failed = CutileFacts(kernel="k", arch="sm_90", error="no")
    assert failed.model_dump() == {
        "language": "cutile-dsl", "kernel": "k", "arch": "sm_90", "hints": {}, "toolchain": {},
        "error": "no",
    }  # fmt: skip
    assert CutileFacts.model_validate(failed.model_dump()) == failed
    assert not failed.ok


def test_properties():
    assert facts().ok
    assert not facts().spills
    assert facts(spill_stores=1).spills
    assert facts(spill_loads=1).spills


def test_work_is_in_the_languages_own_unit():
    mma = {"HGMMA.64x64x16.F32.BF16": 3, "HMMA.16816": 2}
    assert CuteFacts(kernel="k", arch="sm_90", mma_instructions=mma).mma_work == 5
    assert facts(mma_instructions=mma, mma_tile_flops=1000).mma_work == 1000


@pytest.mark.parametrize("kind", [CutileFacts, CuteFacts])
def test_the_language_says_which_facts_they_are(kind):
    adapter = TypeAdapter(Facts)
    made = kind(kernel="k", arch="sm_90", registers=7)
    read = adapter.validate_json(made.model_dump_json())
    assert type(read) is kind
    assert read == made


@pytest.mark.parametrize(
    "change",
    [
        {"registers": -1}, {"registers": None}, {"instruction_mix": None}, {"mma_path": None},
        {"blocks_per_cluster": 0}, {"occupancy": {}}, {"language": "cute-dsl"}, {"kernel": None},
    ],
)  # fmt: skip
def test_what_is_no_fact_is_refused(change):
    with pytest.raises(ValidationError):
        facts(**change)


def test_facts_cannot_be_changed():
    made: StaticFacts = facts()
    with pytest.raises(ValidationError, match="frozen"):
        made.registers = 3


def test_each_language_that_compiles_brings_its_facts():
    assert kinds().keys() == {key for key, language in languages().items() if language.archs}
    assert {"cutile-dsl": CutileFacts, "cute-dsl": CuteFacts}.items() <= kinds().items()


def test_a_new_language_s_facts_are_read_without_a_change_here(tmp_path):
    folder = tmp_path / "third"
    folder.mkdir()
    (folder / "__init__.py").write_text('"""A language."""\n')
    (folder / "facts.py").write_text(
        "from typing import Literal\n"
        "from mla_var3.evidence import StaticFacts\n\n"
        "class ThirdFacts(StaticFacts):\n"
        '    language: Literal["third-dsl"] = "third-dsl"\n'
        "    lanes: int = 0\n"
    )
    code = (
        "import mla_var3.languages as home\n"
        f"home.__path__.append({str(tmp_path)!r})\n"
        "from pydantic import TypeAdapter\n"
        "from mla_var3.evidence.facts import Facts\n"
        "given = {'language': 'third-dsl', 'kernel': 'k', 'arch': 'sm_90', 'lanes': 4}\n"
        "found = TypeAdapter(Facts).validate_python(given)\n"
        "print(type(found).__name__, found.lanes)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "ThirdFacts 4\n", done.stderr
