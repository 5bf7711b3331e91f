from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mla_var3
from mla_var3.errors import ToolchainError
from mla_var3.languages.cutile.remarks import parse_remarks

KERNELS = (Path(mla_var3.__file__).parent / "kernel").resolve()


def record(number, line, *, tag="Passed", name="Memory", text="Chosen", extra=()):
    arguments = [f"  - RemarkId:    {number}", f"  - Remark:      {text}", *extra]
    return "\n".join(
        [
            f"--- !{tag}",
            f"Pass:            {name}",
            "Name:            RemarkSomething",
            f"DebugLoc:        {{ File: '{KERNELS}/cutile/k.py', Line: {line}, Column: 4 }}",
            "Function:        k",
            "Args:",
            *arguments,
            "...",
            "",
        ]
    )


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(1, 9)), unique_by=lambda pair: pair[0]),
    st.randoms(),
)
def test_doubled_records_count_once_and_equal_ones_merge(pairs, random):
    texts = [record(number, line) for number, line in pairs] * 2
    random.shuffle(texts)
    found = parse_remarks("".join(texts))
    lines = [line for _, line in pairs]
    assert {r.line: r.count for r in found} == {line: lines.count(line) for line in lines}
    assert [r.line for r in found] == sorted(set(lines))


def test_message_has_instruction_shape_and_each_reason_once():
    extra = [
        "  - Instruction: TMA Load instruction",
        "  - Shape:       '[64, 64]'",
        "  - Reason:      'loc(\"/a/b.py\":10:4): stride not 16-byte aligned'",
        "  - Reason:      'loc(\"/a/b.py\":10:4): stride not 16-byte aligned'",
        "  - Reason:      'base unknown'",
    ]
    (found,) = parse_remarks(record(1, 7, tag="Failure", text="Not chosen.", extra=extra))
    assert found.kind == "failed"
    assert found.category == "memory"
    assert found.file == "kernels/cutile/k.py"
    assert found.message == (
        "Not chosen: TMA Load instruction [64, 64] (stride not 16-byte aligned; base unknown)"
    )


def test_fma_fallback_shows_no_shape():
    extra = ["  - Instruction: FMA", "  - Shape:       '[1, 1, 1]'"]
    (found,) = parse_remarks(record(1, 7, tag="Missed", name="Tensor-core", extra=extra))
    assert (found.kind, found.category, found.message) == ("missed", "tensor-core", "Chosen: FMA")


def test_a_record_without_a_place():
    text = record(1, 7).replace(
        next(line for line in record(1, 7).splitlines() if "DebugLoc" in line) + "\n", ""
    )
    (found,) = parse_remarks(text)
    assert (found.file, found.line) == ("unknown", 0)


def test_no_remarks():
    assert parse_remarks("") == []


@pytest.mark.parametrize(
    "text",
    [
        "--- !Passed\n- a list\n",
        "--- !Passed\nPass: Memory\n",
        record(1, 1, tag="Invented"),
        "--- {",
        record("many", 1),
    ],
)
def test_texts_that_are_no_remarks_are_refused(text):
    with pytest.raises(ToolchainError, match="remarks cannot be read"):
        parse_remarks(text)
