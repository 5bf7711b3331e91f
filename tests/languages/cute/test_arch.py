import pytest

from mla_var3.errors import UnknownNameError
from mla_var3.languages.cute import arch


def test_targets_are_what_only_that_arch_has():
    assert arch.target("sm_90") == "sm_90a"
    assert arch.target("sm_90a") == "sm_90a"
    assert arch.target("sm_100f") == "sm_100a"
    assert arch.target("sm_80") == "sm_80"


def test_an_unknown_arch_is_named_with_the_known_ones():
    with pytest.raises(UnknownNameError, match=r"unknown arch 'sm_70' \(known: sm_80.*"):
        arch.target("sm_70")


@pytest.mark.parametrize(
    ("mark", "fits", "refused"),
    [
        ("tcgen05", ["sm_100", "sm_103a", "sm_110"], ["sm_80", "sm_90", "sm_120"]),
        ("warpgroup", ["sm_90"], ["sm_80", "sm_100", "sm_120"]),
        ("make_tiled_tma_atom", ["sm_90", "sm_100", "sm_120"], ["sm_80", "sm_89"]),
        ("setmaxregister_increase", ["sm_90", "sm_121"], ["sm_86"]),
        ("MmaMXF4Op", ["sm_120"], ["sm_100", "sm_90"]),
        ("griddepcontrol_wait", ["sm_90", "sm_100", "sm_120"], ["sm_80", "sm_89"]),
    ],
)
def test_a_feature_decides_which_archs_fit(mark, fits, refused):
    used = arch.features({mark, "anything"})
    assert len(used) == 1
    assert [arch.refusal(used, each) for each in fits] == [None] * len(fits)
    for each in refused:
        assert "which needs" in arch.refusal(used, each)


def test_the_reason_says_what_the_arch_has_instead():
    assert arch.refusal(arch.features({"tcgen05"}), "sm_120") == (
        "uses tcgen05 (fifth-generation tensor cores with tensor memory), which needs sm_100 or "
        "sm_103 or sm_110 and not sm_120: sm_90 has wgmma instead, sm_120 and sm_121 only "
        "warp-level mma"
    )


def test_plain_code_fits_every_arch():
    assert arch.features({"cute", "copy"}) == ()
    assert {arch.refusal((), each) for each in arch.TARGETS} == {None}
