"""Block-scaled products: as the sum over elements says, tile by tile of the scale factors."""

import pytest
import torch

from mla_var3.gpuless.tensors import OnCpu

E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


def blocked(scales: torch.Tensor) -> torch.Tensor:
    """Scale factors [rows, blocks] as torch wants them, element by element."""
    rows, columns = scales.shape
    out = torch.zeros(rows * columns, dtype=scales.dtype)
    for r in range(rows):
        for c in range(columns):
            tile = r // 128 * (columns // 4) + c // 4
            out[512 * tile + 16 * (r % 32) + 4 * (r % 128 // 32) + c % 4] = scales[r, c]
    return out


@pytest.mark.parametrize("bias", [False, True])
def test_four_bits_and_a_factor_per_sixteen(bias):
    torch.manual_seed(0)
    codes = [torch.randint(0, 256, (rows, 64), dtype=torch.uint8) for rows in (128, 256)]
    factors = [torch.randint(1, 5, (rows, 8)).float() for rows in (128, 256)]
    plain = []
    for raw, factor in zip(codes, factors, strict=True):
        digits = torch.stack([raw & 15, raw >> 4], -1).reshape(len(raw), -1)
        signed = torch.tensor([*E2M1, *(-value for value in E2M1)])
        values = signed[digits.long()]
        plain.append(values * factor.repeat_interleave(16, 1))
    added = torch.arange(256.0) if bias else None
    with OnCpu():
        got = torch._scaled_mm(
            codes[0].view(torch.float4_e2m1fn_x2),
            codes[1].view(torch.float4_e2m1fn_x2).transpose(0, 1),
            *(blocked(f).to(torch.float8_e4m3fn) for f in factors),
            bias=added,
            out_dtype=torch.float32,
        )
    assert torch.equal(got, plain[0] @ plain[1].T + (added if bias else 0))


def test_powers_of_two_per_thirty_two():
    torch.manual_seed(1)
    x, y = (torch.randint(-4, 5, (128, 128)).float() for _ in range(2))
    factors = [2.0 ** torch.randint(-2, 3, (128, 4)).float() for _ in range(2)]
    with OnCpu():
        got = torch._scaled_mm(
            x.to(torch.float8_e4m3fn),
            y.to(torch.float8_e4m3fn).transpose(0, 1),
            *(blocked(f).to(torch.float8_e8m0fnu) for f in factors),
            out_dtype=torch.float32,
        )
    wide = [v * f.repeat_interleave(32, 1) for v, f in zip((x, y), factors, strict=True)]
    assert torch.equal(got, wide[0] @ wide[1].T)
