"""Names of compile targets."""

import pytest

from mla_var3.archs import base_arch


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100", "sm_121"])
@pytest.mark.parametrize("variant", ["", "a", "f"])
def test_a_variant_is_of_its_arch(arch, variant):
    assert base_arch(arch + variant) == arch
