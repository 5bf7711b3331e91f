"""Order of sequences and cuts that fit the workers: on the host, on the device, and under v21."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("cutlass", reason="needs nvidia-cutlass-dsl")

from mla_var3.emulator import Options
from mla_var3.emulator.options import DEFAULT, STRICT
from mla_var3.kernel.cute_python.kit import fitted_cuts as cutting
from mla_var3.kernel.cute_python.kit.even import COLUMNS, Cut, even_cuts
from mla_var3.kernel.cute_python.kit.fitted import WORKERS, Fitted
from mla_var3.kernel.cute_python.kit.fitted_cuts import Costs, fitted_cuts, halves, room_for
from mla_var3.kernel.cute_python.kit.ordered import Named, order_rows
from mla_var3.kernel.cute_python.kit.paged_plan import arguments
from mla_var3.kernel.cute_python.mla.flash_mla.flash_mla_v21.flash_mla_v21 import COSTS, Plan
from mla_var3.languages.cute import emulation
from mla_var3.workloads.mla import drawn_lengths

from .attention_cases import assert_merged

TILES = st.lists(st.integers(1, 70), min_size=1, max_size=24)
FREE = Costs(begin=0, split=0, least=1, alone=1)


def split(rows, sequences):
    """Rows of the workers, and the sequences in order."""
    workers = rows[: len(rows) - order_rows(sequences)]
    follows = [one for row in rows[len(workers) :] for one in row]
    assert set(follows[sequences:]) <= {-1}
    order, at = [], workers[0][Named.FIRST]
    while at >= 0 and len(order) <= sequences:
        order.append(at)
        at = follows[at]
    return workers, order


def parts(rows, tiles):
    """(worker, sequence, first tile, one past the last) of all parts."""
    workers, order = split(rows, len(tiles))
    for worker, (first, start, end, stop, *_) in enumerate(workers):
        for place in range(first, end + (stop > 0)):
            yield (
                worker, order[place], start if place == first else 0,
                stop if place == end else tiles[order[place]],
            )  # fmt: skip


def left(rows, tiles):
    """Parts that are less than their sequence."""
    return sum(z - a < tiles[sequence] for _, sequence, a, z in parts(rows, tiles))


@given(tiles=TILES, workers=st.integers(1, 140), costs=st.sampled_from([COSTS, FREE]))
def test_parts_cover_each_tile_once(tiles, workers, costs):
    rows = fitted_cuts(tiles, workers, costs)
    assert len(rows) == workers + order_rows(len(tiles))
    _, order = split(rows, len(tiles))
    assert sorted(order) == list(range(len(tiles)))
    covered = [(sequence, i) for _, sequence, a, z in parts(rows, tiles) for i in range(a, z)]
    assert sorted(covered) == [(s, i) for s, n in enumerate(tiles) for i in range(n)]


@given(tiles=TILES, workers=st.integers(1, 140))
def test_rows_name_who_shares_and_what_they_begin_and_end_with(tiles, workers):
    rows = fitted_cuts(tiles, workers, COSTS)
    holders, taken = {}, {}
    for worker, sequence, _, _ in parts(rows, tiles):
        holders.setdefault(sequence, []).append(worker)
        taken.setdefault(worker, []).append(sequence)
    for found in holders.values():
        assert found == list(range(found[0], found[-1] + 1))
    cut = {found[0]: found[-1] for found in holders.values() if len(found) > 1}
    rows, _ = split(rows, len(tiles))
    assert {w: row[Cut.LAST] for w, row in enumerate(rows) if row[Cut.LAST] >= 0} == cut
    later = {w: found[0] for found in holders.values() for w in found[1:]}
    assert {w: row[Cut.OWNER] for w, row in enumerate(rows) if row[Cut.OWNER] >= 0} == later
    for worker, row in enumerate(rows):
        own = taken.get(worker, [-1])
        assert (row[Named.FIRST], row[Named.LAST]) == (own[0], own[-1])


@given(room=st.integers(0, 400))
def test_room_is_used_to_the_last_tile(room):
    assert halves(room_for(room)) <= room < halves(room_for(room) + 1)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("b", "t", "workers", "most"),
    [(96, 2048, 66, 0.7), (200, 2048, 132, 0.7), (128, 4096, 66, 0.35), (256, 512, 66, 0.35)],
)
def test_fewer_sequences_are_cut_than_in_the_order_given(seed, b, t, workers, most):
    tiles = [-(-n // 64) for n in drawn_lengths(b, t, "ragged", seed)]
    even = even_cuts(tiles, workers, 2, least=4, join=6, each=2)
    after = [*range(1, b), -1]
    named = [(*row, 0 if row[0] == 0 else -1, -1) for row in even]
    given_order = named + [tuple(after[i : i + COLUMNS]) for i in range(0, b, COLUMNS)]
    fitted = fitted_cuts(tiles, workers, COSTS)
    assert left(fitted, tiles) <= most * left(given_order, tiles)

    def longest(rows):
        work = [0] * workers
        for worker, sequence, a, z in parts(rows, tiles):
            work[worker] += halves(z - a) + COSTS.begin + (z - a < tiles[sequence])
        return max(work)

    assert longest(fitted) < longest(given_order)


@given(tiles=TILES, workers=st.integers(1, 140), shortest=st.booleans())
def test_one_of_the_sizes_holds_all_work(tiles, workers, shortest):
    total = sum(halves(n) + COSTS.begin for n in tiles)
    size = max(-(-total // workers), COSTS.begin + COSTS.split + halves(COSTS.alone))
    largest = cutting.fit(tiles, workers, size + cutting.SIZES - 1, COSTS, shortest=shortest)
    assert largest.fits


def test_no_part_is_below_the_least_where_there_is_work_for_more():
    tiles = [max(-(-n // 64), 1) for n in drawn_lengths(32, 4096, "ragged", 1)]
    sizes = [z - a for _, sequence, a, z in parts(fitted_cuts(tiles, 66, COSTS), tiles) if a == 0]
    assert min(sizes) >= COSTS.least
    alone = [z - a for _, _, a, z in parts(fitted_cuts([40], 132, COSTS), [40])]
    assert alone == [COSTS.alone] * 10


def test_three_parts_of_a_sequence_are_avoided_where_either_cut_is_as_good():
    """128 sequences and 132 workers: cutting the longest leaves one in three parts."""
    tiles = [-(-n // 64) for n in drawn_lengths(128, 1024, "ragged", 0)]
    holders = {}
    for worker, sequence, _, _ in parts(fitted_cuts(tiles, 132, COSTS), tiles):
        holders.setdefault(sequence, []).append(worker)
    assert max(map(len, holders.values())) == 2


def test_equal_sequences_are_cut_as_by_the_even_schedule():
    tiles = [69] * 32
    sizes = sorted(z - a for _, _, a, z in parts(fitted_cuts(tiles, 66, COSTS), tiles))
    assert sizes == [34] * 32 + [35] * 32


def test_of_very_many_sequences_the_order_stays(monkeypatch):
    monkeypatch.setattr(cutting, "MOST", 8)
    tiles = [3, 9, 1, 7, 5, 2, 8, 4, 6]
    rows = fitted_cuts(tiles, 4, COSTS)
    assert split(rows, 9)[1] == list(range(9))
    assert sorted(n for *_, a, z in parts(rows, tiles) for n in range(a, z)) == sorted(
        i for n in tiles for i in range(n)
    )


def scheduled(lengths, workers):
    """What the device makes of lengths."""
    cuts = torch.full((workers + order_rows(len(lengths)), COLUMNS), -9, dtype=torch.int32)
    made, keys = Fitted(COSTS), torch.tensor(lengths, dtype=torch.int32)
    found = emulation.execute("schedule", made, arguments(made, (keys, cuts)), (cuts,))
    assert not found.diagnostics
    return [tuple(row) for row in cuts.tolist()]


@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 4000), min_size=1, max_size=12),
    workers=st.sampled_from([1, 3, 16, 66]),
)
def test_the_device_cuts_as_the_host(lengths, workers):
    tiles = [max(-(-n // 64), 1) for n in lengths]
    assert scheduled(lengths, workers) == fitted_cuts(tiles, workers, COSTS)


def test_more_workers_than_a_gpu_has_get_no_work():
    rows = scheduled([64 * 40, 64 * 3], WORKERS + 2)
    assert rows[:WORKERS] == fitted_cuts([40, 3], WORKERS, COSTS)[:WORKERS]
    assert rows[WORKERS : WORKERS + 2] == [(2, 0, 2, 0, -1, -1, -1, -1)] * 2


@pytest.mark.exhaustive
@pytest.mark.parametrize("more", [0, 3], ids=["the most that are sorted", "more"])
def test_the_device_keeps_the_order_of_very_many_as_the_host(more):
    lengths = [64 * (1 + 7 * i % 5) for i in range(cutting.MOST + more)]
    tiles = [n // 64 for n in lengths]
    assert scheduled(lengths, 3) == fitted_cuts(tiles, 3, COSTS)


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize(("seed", "model"), [(1, DEFAULT), (None, STRICT)])
@pytest.mark.parametrize(
    "fields",
    [
        {"b": 3, "h": 8, "s": 4, "t": 500, "page": 16, "lengths": "ragged", "causal": True},
        {"b": 3, "h": 40, "s": 1, "t": 500, "page": 64, "lengths": "ragged"},
        {"b": 2, "h": 40, "s": 1, "t": 900, "page": 64, "lengths": "one"},
    ],
)
def test_results_are_right_where_workers_share(fields, seed, model):
    """Three SMs, so that workers have several sequences, whole and in parts, in another order."""
    tiles = [-(-n // 64) for n in Plan(**fields).drawn()]
    rows = fitted_cuts(tiles, 3, COSTS)
    assert split(rows, len(tiles))[1] != sorted(range(len(tiles)))

    class Few(Plan):
        def cuts(self):
            return rows

    assert_merged(Few(**fields), Options(seed=seed, model=model))
