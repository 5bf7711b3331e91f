"""Torch operators of paged MLA decode: make a step's tile schedule, and run attention per layer.

Beside its outputs a call of attention takes ``workspace_bytes`` for what parts of sequences leave.
"""

from __future__ import annotations

import torch

from mla_var3.serving import kinds
from mla_var3.serving.launching import launch, sms_of


@torch.library.custom_op("mla_var3::even_schedule", mutates_args=())
def even_schedule(lengths: torch.Tensor, rows: int, alone: bool = False) -> torch.Tensor:
    """Cut the work of sequences into equal parts, on the device.

    Args:
        lengths: Keys of each sequence, [b] in int32.
        rows: Heads times queries of a sequence.
        alone: Whether no CTAs share keys, as in ``sparse_decode``.

    Returns:
        Where each part begins and ends, and what calls tell themselves through, [n, 8] in int32;
        the size follows from rows and GPU.
    """
    sms = sms_of(lengths.device)
    made = lengths.new_zeros(kinds.schedule_rows(rows, sms, alone), kinds.COLUMNS)
    cuts = made[: kinds.workers_of(rows, sms, alone)]
    launch(kinds.SCHEDULE, lengths, cuts, written=[cuts])
    return made


@even_schedule.register_fake
def _(lengths: torch.Tensor, rows: int, alone: bool = False) -> torch.Tensor:
    return lengths.new_empty(
        kinds.schedule_rows(rows, sms_of(lengths.device), alone), kinds.COLUMNS
    )


@torch.library.custom_op("mla_var3::paged_decode", mutates_args=("cuts", "o", "lse"))
def paged_decode(
    q: torch.Tensor,
    qpe: torch.Tensor,
    z: torch.Tensor,
    kpe: torch.Tensor,
    table: torch.Tensor,
    lengths: torch.Tensor,
    cuts: torch.Tensor,
    o: torch.Tensor,
    lse: torch.Tensor,
    scale: float,
    causal: bool,
    base2: bool,
    empty: float,
) -> None:
    """Latent attention over pages.

    Args:
        q: Latent queries [b, s, h, 512].
        qpe: Rotary queries [b, s, h, 64].
        z: Latents [pages, page, 512].
        kpe: Rotary parts [pages, page, 64].
        table: Pages of each sequence in order, [b, n] in int32.
        lengths: Keys of each sequence, [b] in int32.
        cuts: By ``even_schedule`` of the same lengths and rows; calls that are given the same one
            run one after another.
        o: Output [b, s, h, 512].
        lse: Logarithm of the sum of exponentials, [b, h, s] in fp32.
        scale: Softmax scale.
        causal: Bottom-right aligned mask.
        base2: Whether the LSE is to base 2; else it is natural.
        empty: The LSE of rows that see no key.
    """
    b, s, h, _ = q.shape
    if not b:
        return
    if not len(z):  # TMA has no tensors without elements; nobody has a key then.
        z, kpe = (x.new_zeros(1, *x.shape[1:]) for x in (z, kpe))
    if not table.shape[1]:
        table = lengths[:, None]
    rows, dtype = s * h, str(q.dtype).removeprefix("torch.")
    attention = kinds.attention(dtype, rows, z.shape[1], table.shape[1] == 1)
    workers = len(cuts) // (1 + 2 * kinds.tiles_of(rows))
    signals, cuts = cuts[workers:].view(-1, kinds.SIGNALS), cuts[:workers]
    places = parts(q, rows, workers)
    numbers, sums = (1.0 if base2 else kinds.LN_2, empty), lse.unsqueeze(-1)
    launch(
        attention, q, qpe, z, kpe, table, lengths, cuts, places, signals, o, sums,
        s if causal else 0, scale / kinds.LN_2, *numbers, written=[places, o, lse],
    )  # fmt: skip


@paged_decode.register_fake
def _(*_: object) -> None:
    return None


@torch.library.custom_op("mla_var3::sparse_decode", mutates_args=("o", "lse"))
def sparse_decode(
    q: torch.Tensor,
    qpe: torch.Tensor,
    cache: torch.Tensor,
    indices: torch.Tensor,
    lengths: torch.Tensor,
    cuts: torch.Tensor,
    o: torch.Tensor,
    lse: torch.Tensor,
    scale: float,
    empty: float,
) -> None:
    """Latent attention of each query token over its own list of tokens of a cache in fp8.

    Args:
        q: Latent queries [n, 1, h, 512] in bfloat16.
        qpe: Rotary queries [n, 1, h, 64].
        cache: Tokens [pages, page, 656] in bytes: e4m3 values, scales in fp32, rotary values.
        indices: Tokens of each list, [n, k] in int32; one that the cache has not counts as none.
        lengths: How many of each list count, [n] in int32.
        cuts: By ``even_schedule`` of the same lengths and h rows, alone.
        o: Output [n, 1, h, 512].
        lse: Natural logarithm of the sum of exponentials, [n, h, 1] in fp32.
        scale: Softmax scale.
        empty: The LSE of a list without tokens.
    """
    n, _, h, _ = q.shape
    if not n:
        return
    if not cache.shape[0]:
        cache = cache.new_zeros(1, *cache.shape[1:])
        indices = torch.full_like(indices, -1)
    workers = len(cuts) // (1 + 2 * kinds.tiles_of(h, alone=True))
    cuts, slots = cuts[:workers], 2 * workers * kinds.tiles_of(h, alone=True)
    partial = q.new_empty(slots, kinds.ROWS, kinds.LATENT, dtype=torch.float32)
    partial_lse = q.new_empty(slots, kinds.ROWS, dtype=torch.float32)
    numbers, sums = (kinds.LN_2, empty), lse.unsqueeze(-1)
    launch(
        kinds.SPARSE, q, qpe, cache, indices, lengths, cuts, partial, partial_lse, o, sums,
        scale / kinds.LN_2, *numbers, written=[partial, partial_lse, o, lse],
    )  # fmt: skip
    merge = kinds.merge(kinds.SPARSE.dtype, 1)
    launch(merge, cuts, partial, partial_lse, o, sums, *numbers, written=[])


@sparse_decode.register_fake
def _(*_: object) -> None:
    return None


def parts(like: torch.Tensor, rows: int, workers: int) -> torch.Tensor:
    """Room for what parts of sequences leave: of each half of two per worker and row tile."""
    places = 4 * workers * kinds.tiles_of(rows)
    return like.new_empty((places, kinds.PLACE), dtype=torch.float32)


def workspace_bytes(rows: int, device: torch.device) -> int:
    """What a call of ``paged_decode`` takes beside its outputs."""
    workers = kinds.workers_of(rows, sms_of(device))
    return parts(torch.empty(0, device="meta"), rows, workers).nbytes
