import pytest
from hypothesis import given
from hypothesis import strategies as st

from mla_var3.errors import RecordError
from mla_var3.evidence import revisions
from mla_var3.evidence.revisions import Observed, Table, Tensor, revision

BASE = Tensor(shape=(2, 3), dtype="bfloat16", norm=1.0, sample=0.25)


def observed(tensor: Tensor = BASE, **changes) -> Observed:
    fields = {
        "problem": {"b": 1},
        "tensors": {"o": tensor},
        "tolerance": {"o": (4e-3, 1.2e-2, "x")},
    }
    return Observed(**{**fields, **changes})


@given(st.floats(-5e-5, 5e-5), st.floats(-5e-5, 5e-5))
def test_two_processors_agree(norm, sample):
    other = BASE.model_copy(update={"norm": 1.0 + norm, "sample": 0.25 + sample})
    assert BASE.like(other)
    assert other.like(BASE)


@pytest.mark.parametrize(
    "change",
    [{"norm": 1.001}, {"sample": 0.2505}, {"shape": (3, 2)}, {"dtype": "float16"}, {"infinite": 1}],
)
def test_another_tensor_is_told(change):
    assert not BASE.like(BASE.model_copy(update=change))


def test_differences_are_named():
    other = BASE.model_copy(update={"norm": 2.0})
    assert list(observed().differences(observed(other))) == ["o"]
    assert list(observed().differences(observed(tolerance={"o": (1.0, 1.0, "x")}))) == [
        "tolerance of o"
    ]
    assert list(observed().differences(observed(problem={"b": 2}))) == ["other check problems"]
    assert list(observed().differences(observed(tensors={"p": BASE}))) == ["o", "p"]


def test_a_table_is_read_as_it_was_written(tmp_path):
    made = Table(problems={"mla.LatentProblem": (revision([observed()]), revision([], "why"))})
    revisions.write(made, tmp_path / "t.json")
    assert revisions.read(tmp_path / "t.json") == made
    assert revisions.read(tmp_path / "none.json") == Table()
    (tmp_path / "bad.json").write_text("[]")
    with pytest.raises(RecordError, match="no table of revisions"):
        revisions.read(tmp_path / "bad.json")
