"""The collector rests while libraries are imported, and is on again afterwards."""

import gc

import pytest

from mla_var3 import collecting
from mla_var3.collecting import OBJECTS, seldom, uncollected, unsearched


def test_nothing_is_collected_inside_and_what_exists_is_never_searched():
    with uncollected():
        assert not gc.isenabled()
        kept = [[] for _ in range(10)]
    assert gc.isenabled()
    assert gc.get_freeze_count() >= len(kept)
    assert not searched(kept[0])


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


def searched(one):
    return any(found is one for found in gc.get_objects())


def test_what_existed_is_not_searched_in_a_block_and_is_again_behind_it(monkeypatch):
    monkeypatch.setattr(collecting, "_for_good", False)  # The test run keeps what it imported.
    kept = []
    with unsearched():
        assert not searched(kept)
        assert gc.isenabled()
        with unsearched():
            pass
        assert not searched(kept)
    assert searched(kept)


def test_what_is_kept_no_block_brings_back(monkeypatch):
    monkeypatch.setattr(collecting, "_for_good", False)
    kept = []
    with unsearched(), uncollected():
        pass
    assert not searched(kept)
    with unsearched():
        pass
    assert not searched(kept)


def test_a_block_does_not_count_what_is_kept(monkeypatch):
    monkeypatch.setattr(gc, "get_freeze_count", lambda: pytest.fail("it walks over everything"))
    with unsearched():
        pass


def test_garbage_is_searched_less_often_inside_and_as_before_behind_an_error():
    before, inside = gc.get_threshold(), []

    def work():
        with seldom():
            inside.append((gc.isenabled(), gc.get_threshold()))
            raise ImportError

    with pytest.raises(ImportError):
        work()
    assert inside == [(True, (OBJECTS, *before[1:]))]
    assert gc.get_threshold() == before
