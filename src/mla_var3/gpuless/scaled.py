"""CPU replacement of ``torch._scaled_mm``: matrix products of block-scaled operands."""

from __future__ import annotations

from typing import Any

import torch

#: Values of the codes of 4-bit floats; the upper half is negative.
_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
#: Rows and columns of a tile of scale factors, whose rows lie 32 by 32 beside each other.
_ROWS, _COLUMNS, _QUARTER = 128, 4, 32


def product(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``torch._scaled_mm``; one scale for all, or for a row, torch does itself."""
    names = ("input", "mat2", "scale_a", "scale_b", "bias", "scale_result", "out_dtype")
    given = dict(zip(names, args, strict=False)) | kwargs
    x, y, of_x, of_y = (given[name] for name in names[:4])
    if of_x.dtype == torch.float32:
        return func(*args, **kwargs)
    left, right = _scaled(x, of_x), _scaled(y.transpose(0, 1), of_y)
    out = left @ right.T
    if (bias := given.get("bias")) is not None:
        out += bias
    return out.to(given.get("out_dtype") or x.dtype)


def _scaled(x: Any, scales: Any) -> Any:
    """A matrix [rows, k] times its scale factors, as float32."""
    plain = _plain(x.contiguous())
    factors = _rows(scales, -(-len(plain) // _ROWS))[: len(plain)]
    block = 16 if scales.dtype == torch.float8_e4m3fn else 32
    return plain * factors.repeat_interleave(block, 1)[:, : plain.shape[1]]


def _plain(x: Any) -> Any:
    if x.dtype != torch.float4_e2m1fn_x2:
        return x.float()
    codes = x.view(torch.uint8)
    both = torch.stack([codes & 15, codes >> 4], -1).reshape(len(codes), -1).long()
    return torch.tensor([*_E2M1, *(-value for value in _E2M1)])[both]


def _rows(scales: Any, high: int) -> Any:
    """Scale factors [rows, blocks] out of their tiles."""
    flat = scales.contiguous().reshape(-1)
    tiles = flat.view(torch.uint8).view(high, -1, _QUARTER, _ROWS // _QUARTER, _COLUMNS)
    rows = tiles.permute(0, 3, 2, 1, 4).reshape(high * _ROWS, -1).contiguous()
    return rows.view(scales.dtype).float()
