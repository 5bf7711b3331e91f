"""Caches in fp8, written and read by plain torch, in the two forms that calls over lists take."""

from __future__ import annotations

import torch

from mla_var3.serving.kinds import LATENT, MODEL1, MODEL1_ROW, ROPE, SPARSE_ROW

#: The greatest value of e4m3, of which a group's magnitude is made by its scale.
GREATEST = 448.0
#: Values of a group, of 656 bytes a token and of 584; and how many groups the latter has.
WIDE, NARROW, GROUPS = 128, 64, 7
#: Bytes of a token past its row, one of them unused, and what 2**0 is in ue8m0.
PAST, BIAS = 8, 127


def packed(form: str, tokens: torch.Tensor, page: int) -> torch.Tensor:
    """Tokens in pages, as a server keeps them.

    Args:
        form: Begins with the bytes of a token, ``656`` or ``584``.
        tokens: [pages * page, 576], or 512 of 584 bytes.
        page: Tokens of a page.

    Returns:
        [pages, page, 1, 656 or 584] in bytes. Scales are powers of two.
    """
    if form.startswith("656"):
        values, scales = _in_fp8(tokens[:, :LATENT], WIDE)
        parts = values, scales.exp2(), tokens[:, LATENT:].bfloat16()
        rows = torch.cat([x.contiguous().view(torch.uint8) for x in parts], -1)
        return rows.view(-1, page, 1, SPARSE_ROW)
    values, scales = _in_fp8(tokens[:, : GROUPS * NARROW], NARROW)
    rope = tokens[:, GROUPS * NARROW :].bfloat16().contiguous().view(torch.uint8)
    past = torch.zeros(len(tokens), PAST, dtype=torch.uint8)
    past[:, :GROUPS] = (scales + BIAS).to(torch.uint8)
    pages = [
        x.unflatten(0, (-1, page)).flatten(1)
        for x in (torch.cat([values.view(torch.uint8), rope], -1), past)
    ]
    # Pages begin at multiples of a row, and a page is as if it had no such end.
    end = past.new_zeros(len(pages[0]), -page * MODEL1 % MODEL1_ROW)
    return torch.cat([*pages, end], -1)[:, : page * MODEL1].view(-1, page, 1, MODEL1)


def _in_fp8(values: torch.Tensor, group: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Values [n, m] in e4m3, and log2 of the scale of each group."""
    groups = values.unflatten(-1, (-1, group))
    scales = (groups.abs().amax(-1) / GREATEST).clamp_min(1e-30).log2().ceil()
    scaled = groups / scales.exp2()[..., None]
    return scaled.to(torch.float8_e4m3fn).flatten(1), scales


def unpacked(form: str, rows: torch.Tensor) -> torch.Tensor:
    """Tokens of a cache in fp32, as a kernel reads them.

    Args:
        form: Begins with the bytes of a token, ``656`` or ``584``.
        rows: [pages, page, 656], or the rows [pages, page, 576] in pages of 584 bytes per token.

    Returns:
        [pages, page, 576], or 512 of 584 bytes.
    """
    if form.startswith("656"):
        scales = rows[..., LATENT : LATENT + 16].contiguous().view(torch.float32)
        return _read(rows, LATENT, WIDE, scales, LATENT + 16)
    pages, page, row = rows.shape
    past = rows.as_strided((pages, page, PAST), (rows.stride(0), PAST, 1), page * row)
    scales = (past[..., :GROUPS].float() - BIAS).exp2()
    return _read(rows, GROUPS * NARROW, NARROW, scales, MODEL1_ROW - 2 * ROPE)


def _read(
    rows: torch.Tensor, count: int, group: int, scales: torch.Tensor, rope: int
) -> torch.Tensor:
    values = rows[..., :count].contiguous().view(torch.float8_e4m3fn).float()
    rotary = rows[..., rope:].contiguous().view(torch.bfloat16).float()
    return torch.cat([values * scales.repeat_interleave(group, -1), rotary], -1)


def rows_of(form: str, cache: torch.Tensor) -> torch.Tensor:
    """What ``unpacked`` reads, of a cache as a server keeps it."""
    pages, page = cache.shape[:2]
    rows = cache.squeeze(2)
    if form.startswith("656"):
        return rows
    return rows.as_strided((pages, page, MODEL1_ROW), (cache.stride(0), MODEL1_ROW, 1))
