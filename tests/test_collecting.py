"""The collector rests while libraries are imported, and is on again afterwards."""

import gc

import pytest

from mla_var3.collecting import uncollected


def test_nothing_is_collected_inside_and_what_exists_is_never_searched():
    with uncollected():
        assert not gc.isenabled()
        kept = [[] for _ in range(10)]
    assert gc.isenabled()
    assert gc.get_freeze_count() >= len(kept)
    assert not any(found is kept[0] for found in gc.get_objects())


def test_an_error_inside_leaves_it_on():
    with pytest.raises(ImportError), uncollected():
        raise ImportError
    assert gc.isenabled()


def test_where_it_is_off_it_stays_off():
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
