import pytest

from mla_var3.evidence import Fingerprint
from mla_var3.evidence.fingerprint import DIGITS, differences, digest

BASE = Fingerprint(
    code="a" * DIGITS, grid=(132, 1, 1), block=(384, 1, 1), cluster=(1, 1, 1), shared_bytes=231424,
    scalars=("0.1",), tensors="b" * DIGITS, descriptors="c" * DIGITS,
)  # fmt: skip


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"code": "f" * DIGITS}, "code of attention"),
        ({"grid": (128, 1, 1)}, "grid of attention 132 -> 128"),
        ({"cluster": (2, 1, 1)}, "cluster of attention 1 -> 2"),
        ({"block": (128, 2, 1)}, "block of attention 384 -> 128 x 2"),
        ({"shared_bytes": 1024}, "shared bytes of attention 231424 -> 1024"),
        ({"scalars": ("0.2",)}, "scalar 0 of attention 0.1 -> 0.2"),
        ({"tensors": "f" * DIGITS}, "shapes or strides of attention"),
        ({"descriptors": "f" * DIGITS}, "TMA descriptors of attention"),
    ],
)
def test_each_difference_is_named(change, said):
    assert differences([BASE], [BASE.model_copy(update=change)], ["attention"]) == [said]


def test_equal_launches_do_not_differ():
    assert differences([BASE, BASE], [BASE, BASE], ["attention", "merge"]) == []


def test_another_number_of_stages_is_the_difference():
    assert differences([BASE], [BASE, BASE], ["attention", "merge"]) == ["1 -> 2 stages"]


def test_parts_of_a_digest_do_not_run_into_each_other():
    assert digest(["ab", "c"]) != digest(["a", "bc"])
    assert digest(["ab"]) == digest([b"ab"])


def test_a_code_that_the_assembler_makes_too_is_no_change():
    both = Fingerprint(code="0" * 16, also=("1" * 16,))
    for code in ("0" * 16, "1" * 16):
        assert differences([both], [Fingerprint(code=code)], ["a"]) == []
        assert differences([Fingerprint(code=code)], [both], ["a"]) == []
    assert differences([both], [Fingerprint(code="2" * 16)], ["a"]) == ["code of a"]
