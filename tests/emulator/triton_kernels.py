"""Kernels after the subjects of Triton's first six tutorials, each compared with torch.

Run by the emulator as a script, as anybody's Triton program would be.
"""

import sys

import torch
import triton
import triton.language as tl


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    total = tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside)
    tl.store(out + at, total, mask=inside)


@triton.jit
def softmax(x, out, width, BLOCK: tl.constexpr):
    row, column = tl.program_id(0), tl.arange(0, BLOCK)
    inside = column < width
    value = tl.load(x + row * width + column, mask=inside, other=-float("inf"))
    weight = tl.exp(value - tl.max(value, axis=0))
    tl.store(out + row * width + column, weight / tl.sum(weight, axis=0), mask=inside)


@triton.autotune(
    [triton.Config({"M": 64, "N": 64, "K": 32}, num_stages=3, num_warps=4),
     triton.Config({"M": 32, "N": 64, "K": 64}, num_stages=2, num_warps=4)],
    key=["m", "n", "k"],
)  # fmt: skip
@triton.jit
def matmul(a, b, c, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.program_id(1) * N + tl.arange(0, N)
    total = tl.zeros((M, N), tl.float32)
    for step in range(0, k, K):
        depth = step + tl.arange(0, K)
        left = tl.load(a + rows[:, None] * k + depth[None, :], mask=depth[None, :] < k, other=0.0)
        right = tl.load(b + depth[:, None] * n + columns[None, :], mask=depth[:, None] < k, other=0)
        total = tl.dot(left, right, total)
    inside = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(c + rows[:, None] * n + columns[None, :], total.to(tl.float16), mask=inside)


@triton.jit
def dropout(x, out, n, p, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    kept = tl.rand(seed, at) > p
    value = tl.load(x + at, mask=at < n)
    tl.store(out + at, tl.where(kept, value / (1 - p), 0.0), mask=at < n)


@triton.jit
def layer_norm(x, out, weight, bias, gradient, width, BLOCK: tl.constexpr):
    row, column = tl.program_id(0), tl.arange(0, BLOCK)
    inside = column < width
    value = tl.load(x + row * width + column, mask=inside, other=0.0)
    mean = tl.sum(value, axis=0) / width
    centered = tl.where(inside, value - mean, 0.0)
    scaled = centered * tl.rsqrt(tl.sum(centered * centered, axis=0) / width + 1e-5)
    w, b = tl.load(weight + column, mask=inside), tl.load(bias + column, mask=inside)
    tl.store(out + row * width + column, scaled * w + b, mask=inside)
    tl.atomic_add(gradient + column, scaled, mask=inside)  # of the weight, for ones


@triton.jit
def attention(q, k, v, out, keys, scale, D: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    rows, depth = tl.program_id(0) * M + tl.arange(0, M), tl.arange(0, D)
    query = tl.load(q + rows[:, None] * D + depth[None, :])
    most, total = tl.full((M,), -float("inf"), tl.float32), tl.zeros((M,), tl.float32)
    sums = tl.zeros((M, D), tl.float32)
    for start in range(0, keys, N):
        at = start + tl.arange(0, N)
        key = tl.load(k + at[None, :] * D + depth[:, None])
        score = tl.where(rows[:, None] >= at[None, :], tl.dot(query, key) * scale, -float("inf"))
        new = tl.maximum(most, tl.max(score, axis=1))
        weight, old = tl.exp2(score - new[:, None]), tl.exp2(most - new)
        value = tl.load(v + at[:, None] * D + depth[None, :])
        sums = tl.dot(weight.to(tl.float16), value, sums * old[:, None])
        total, most = total * old + tl.sum(weight, axis=1), new
    tl.store(out + rows[:, None] * D + depth[None, :], (sums / total[:, None]).to(tl.float16))


def run_add() -> None:
    x = torch.randn(1000, device=triton.runtime.driver.active.get_active_torch_device())
    y, out = torch.randn(1000, device="cuda"), torch.empty_like(x)
    add[(4,)](x, y, out, 1000, BLOCK=256)
    torch.testing.assert_close(out, x + y)


def run_softmax() -> None:
    x = torch.randn(5, 781, device="cuda")
    out = torch.empty_like(x)
    softmax[(5,)](x, out, 781, BLOCK=1024, num_warps=8)
    torch.testing.assert_close(out, torch.softmax(x, 1))


def run_matmul() -> None:
    a = torch.randn(128, 200, device="cuda", dtype=torch.float16)
    b = torch.randn(200, 64, device="cuda", dtype=torch.float16)
    c = torch.empty(128, 64, device="cuda", dtype=torch.float16)
    matmul[lambda meta: (128 // meta["M"], 64 // meta["N"])](a, b, c, 128, 64, 200)
    torch.testing.assert_close(c, (a.float() @ b.float()).half(), atol=2e-2, rtol=1e-2)


def run_dropout() -> None:
    x = torch.randn(2000, device="cuda")
    out, again = torch.empty_like(x), torch.empty_like(x)
    for target in (out, again):
        dropout[(8,)](x, target, 2000, 0.5, 123, BLOCK=256)
    assert torch.equal(out, again)
    kept = out != 0
    assert 0.4 < kept.float().mean().item() < 0.6
    torch.testing.assert_close(out[kept], 2 * x[kept])


def run_layer_norm() -> None:
    x, weight, bias = (torch.randn(*s, device="cuda") for s in ((6, 300), (300,), (300,)))
    out, gradient = torch.empty_like(x), torch.zeros(300, device="cuda")
    layer_norm[(6,)](x, out, weight, bias, gradient, 300, BLOCK=512)
    plain = torch.nn.functional.layer_norm(x, (300,))
    torch.testing.assert_close(out, plain * weight + bias, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(gradient, plain.sum(0), atol=1e-5, rtol=1e-5)


def run_attention() -> None:
    q, k, v = (torch.randn(128, 64, device="cuda", dtype=torch.float16) for _ in range(3))
    out = torch.empty_like(q)
    attention[(2,)](q, k, v, out, 128, 64**-0.5 * 1.4426950408889634, D=64, M=64, N=64)
    score = (q.float() @ k.float().T * 64**-0.5).masked_fill(
        ~torch.ones(128, 128, dtype=torch.bool).tril(), -torch.inf
    )
    wanted = torch.softmax(score, 1) @ v.float()
    torch.testing.assert_close(out.float(), wanted, atol=1e-2, rtol=1e-2)


if __name__ == "__main__":
    torch.manual_seed(0)
    for subject in sys.argv[1:]:
        globals()[f"run_{subject}"]()
        print(f"{subject}: right")
