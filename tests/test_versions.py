from __future__ import annotations

import pytest

from mla_var3.versions import number_of


def test_versions_are_ordered_by_their_numbers():
    assert sorted(["v10", "v2", "v0"], key=number_of) == ["v0", "v2", "v10"]


def test_what_is_no_version_is_refused():
    with pytest.raises(ValueError, match="latest"):
        number_of("latest")
