from __future__ import annotations

import inspect

import pytest

from mla_var3 import errors
from mla_var3.errors import HyperMlaError, UnknownNameError


def test_every_error_has_the_one_base():
    kinds = [v for v in vars(errors).values() if inspect.isclass(v)]
    assert len(kinds) > 5
    assert all(issubclass(kind, HyperMlaError) and kind.__doc__ for kind in kinds)


@pytest.mark.parametrize(
    ("name", "known", "said"),
    [
        ("v3", ["v1", "v2"], "unknown version 'v3' (known: v1, v2); did you mean 'v2'?"),
        ("zzz", ["v1", "v2"], "unknown version 'zzz' (known: v1, v2)"),
        ("v3", [], "unknown version 'v3' (known: none exist)"),
    ],
)
def test_an_unknown_name_lists_the_known_and_the_nearest(name, known, said):
    error = UnknownNameError("version", name, known)
    assert str(error) in (said, said.replace("'v2'?", "'v1'?"))
    assert (error.what, error.name, error.known) == ("version", name, known)
