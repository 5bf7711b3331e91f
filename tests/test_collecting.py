"""The collector rests while libraries are imported, and is on again afterwards."""

import gc

import pytest

from mla_var3.collecting import uncollected, unsearched


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


def test_what_existed_is_not_searched_in_a_block_and_is_again_behind_it(monkeypatch):
    frozen = 0
    monkeypatch.setattr(gc, "get_freeze_count", lambda: frozen)
    kept = [[] for _ in range(10)]
    with unsearched():
        assert not any(found is kept[0] for found in gc.get_objects())
        assert gc.isenabled()
    assert any(found is kept[0] for found in gc.get_objects())
    frozen = 1  # As large libraries are, which nothing may bring back.
    gc.freeze()
    with unsearched():
        pass
    assert not any(found is kept[0] for found in gc.get_objects())
