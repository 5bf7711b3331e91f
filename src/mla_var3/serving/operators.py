"""Torch operators of paged MLA decode: make a step's tile schedule, and run attention per layer.

Beside its outputs a call of attention takes ``workspace_bytes`` for what parts of sequences leave.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from mla_var3.serving import kinds
from mla_var3.serving.launching import launch, sms_of


def operator(mutates: Iterable[str] = ()) -> Callable[[Callable[..., Any]], Any]:
    """Make a torch operator of a function: ``torch.ops.mla_var3`` has it under its name.

    ``torch.library.custom_op`` does as much, but imports torch's compiler at the first call of all,
    which takes seconds.

    Args:
        mutates: Arguments that it writes.
    """

    def made(function: Callable[..., Any]) -> Any:
        name = f"mla_var3::{function.__name__}"
        schema = torch.library.infer_schema(function, mutates_args=mutates)
        torch.library.define(name, schema, tags=(torch.Tag.pt2_compliant_tag,))
        torch.library.impl(name, "CompositeExplicitAutograd", function)
        return getattr(torch.ops.mla_var3, function.__name__).default

    return made


@operator()
def even_schedule(lengths: torch.Tensor, rows: int, alone: bool = False) -> torch.Tensor:
    """Cut the work of sequences into equal parts, on the device.

    Args:
        lengths: Keys of each sequence, [b] in int32.
        rows: Heads times queries of a sequence.
        alone: Whether no CTAs share keys, as in ``list_decode``.

    Returns:
        Where each part begins and ends, and what calls tell themselves through, [n, 8] in int32;
        the size follows from rows and GPU.
    """
    sms = sms_of(lengths.device)
    made = lengths.new_zeros(kinds.schedule_rows(rows, sms, alone), kinds.COLUMNS)
    cuts = made[: kinds.workers_of(rows, sms)]
    schedule = kinds.LIST_SCHEDULE if alone else kinds.SCHEDULE
    launch(schedule, lengths, cuts, written=[cuts])
    return made


@torch.library.register_fake("mla_var3::even_schedule")
def _(lengths: torch.Tensor, rows: int, alone: bool = False) -> torch.Tensor:
    return lengths.new_empty(
        kinds.schedule_rows(rows, sms_of(lengths.device), alone), kinds.COLUMNS
    )


@operator(mutates=("cuts", "o", "lse"))
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
            run one after another. Where queries have more tiles of rows than the GPU has SMs, all
            of which have to run at once, they are taken some at a time, with schedules of their
            own.
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
    if s > (most := kinds.queries_at_once(h, sms_of(q.device))):
        for end in range(s, 0, -most):
            some = slice(max(end - most, 0), end)
            # To the last of these queries a sequence ends where the mask of the next one begins.
            seen = (lengths - (s - end)).clamp_(min=0) if causal else lengths
            own = even_schedule(seen, h * (some.stop - some.start))
            paged_decode(
                q[:, some], qpe[:, some], z, kpe, table, seen, own, o[:, some], lse[..., some],
                scale, causal, base2, empty,
            )  # fmt: skip
        return
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


@torch.library.register_fake("mla_var3::paged_decode")
def _(*_: object) -> None:
    return None


@operator(mutates=("cuts", "o", "lse"))
def list_decode(
    q: torch.Tensor,
    qpe: torch.Tensor,
    cache: torch.Tensor,
    other: torch.Tensor,
    lists: torch.Tensor,
    other_lists: torch.Tensor,
    firsts: torch.Tensor,
    lengths: torch.Tensor,
    cuts: torch.Tensor,
    o: torch.Tensor,
    lse: torch.Tensor,
    scale: float,
    empty: float,
    form: str,
) -> None:
    """Latent attention of each query token over tokens of a form of ``kinds.FORMS``.

    Args:
        q: Latent queries [n, 1, h, 512] in bfloat16.
        qpe: Rotary queries [n, 1, h, 64].
        cache: Rows of tokens [pages, page, width] in bytes.
        other: Those of a second cache; not read where the form has none.
        lists: Tokens of each list, [n, k] in int32, or pages of sequences, [b, m].
        other_lists: Tokens of the second cache's lists, likewise.
        firsts: How many of each first list count, [n] in int32.
        lengths: The same filled up to whole tiles, and how many of the second list count.
        cuts: By ``even_schedule`` of ``lengths`` and h rows, alone.
        o: Output [n, 1, h, 512].
        lse: Natural logarithm of the sum of exponentials [n, h, 1, 1] in fp32.
        scale: Softmax scale.
        empty: The LSE of a list without tokens.
        form: What tokens are.
    """
    n, _, h, _ = q.shape
    if not n:
        return
    workers = len(cuts) // (1 + 2 * kinds.tiles_of(h, alone=True))
    signals, cuts = cuts[workers:].view(-1, kinds.SIGNALS), cuts[:workers]
    places = parts(q, h, workers, alone=True)
    launch(
        kinds.lists(form), q, qpe, cache, other, lists, other_lists, firsts, lengths, cuts, places,
        signals, o, lse, scale / kinds.LN_2, kinds.LN_2, empty, written=[places, o, lse],
    )  # fmt: skip


@torch.library.register_fake("mla_var3::list_decode")
def _(*_: object) -> None:
    return None


@operator(mutates=("o", "lse", "top"))
def list_prefill(
    q: torch.Tensor,
    qpe: torch.Tensor,
    rows: torch.Tensor,
    lists: torch.Tensor,
    lengths: torch.Tensor | None,
    sink: torch.Tensor | None,
    o: torch.Tensor,
    lse: torch.Tensor,
    top: torch.Tensor,
    scale: float,
) -> None:
    """Latent attention of each query token over rows of 16-bit values.

    Lists are whole, but in parts where so few of them would leave most of the GPU idle.

    Args:
        q: Latent queries [n, 1, h, 512] in bfloat16.
        qpe: Rotary queries [n, 1, h, 64]; any where rows are 512 wide.
        rows: Bytes of rows [1, tokens, 1152 or 1024].
        lists: Tokens of each list, [n, k] in int32.
        lengths: How many of each list count, [n] in int32; all where there are none.
        sink: A logit per head that takes weight and gives no value, [h] in fp32.
        o: Output [n, 1, h, 512].
        lse: Natural logarithm of the sum of exponentials [n, h] in fp32.
        top: Each row's highest score, likewise.
        scale: Softmax scale.
    """
    n, _, h, _ = q.shape
    if not n:
        return
    # What is not given is not read.
    counts = lists.reshape(-1)[:n] if lengths is None else lengths
    logits = lse.view(-1)[:h] if sink is None else sink
    sms, form = sms_of(q.device), f"rows{rows.shape[-1] // 2}"
    cut = kinds.parts_of(n, h, lists.shape[1], sms)
    given, flags = (
        (q, qpe, rows, lists, counts, logits),
        (int(x is not None) for x in (lengths, sink)),
    )
    numbers, written = (*flags, scale / kinds.LN_2), [o, lse, top]
    if cut == 1:
        # Where lengths differ, the GPU gives each CTA that ends a list of its own to follow it.
        workers = n if lengths is not None else kinds.workers_of(h, sms)
        launch(kinds.prefill(form), *given, o, lse, top, workers, *numbers, written=written)
        return
    places = parts(q, h, cut * n, alone=True)
    signals = lists.new_zeros(len(places), kinds.SIGNALS)
    launch(
        kinds.prefill(f"{form}-parts"), *given, places, signals, o, lse, top, cut, *numbers,
        written=[places, *written],
    )  # fmt: skip


@torch.library.register_fake("mla_var3::list_prefill")
def _(*_: object) -> None:
    return None


def parts(like: torch.Tensor, rows: int, workers: int, alone: bool = False) -> torch.Tensor:
    """Room for what parts of sequences leave: of each half of two per worker and row tile."""
    places = max(4 * workers * kinds.tiles_of(rows, alone), 1)
    return like.new_empty((places, kinds.PLACE), dtype=torch.float32)


def workspace_bytes(rows: int, device: torch.device) -> int:
    """What a call of ``paged_decode`` takes beside its outputs."""
    workers = kinds.workers_of(rows, sms_of(device))
    return parts(torch.empty(0, device="meta"), rows, workers).nbytes
