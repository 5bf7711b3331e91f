"""Files of users, as tests adopt them."""

from __future__ import annotations

ADD = """
import cuda.tile as ct
import torch

TILE = 32
Size = ct.Constant[int]


@ct.kernel
def add_kernel(x, y, out, N: Size):
    i = ct.bid(0)
    ct.store(out, (i,), ct.load(x, (i,), (N,)) + ct.load(y, (i,), (N,)))


def add(x, y):
    out = torch.empty_like(x)
    grid = (ct.cdiv(x.shape[0], TILE),)
    ct.launch(torch.cuda.current_stream(), grid, add_kernel, (x, y, out, TILE))
    return out
"""
DEMO = (
    ADD
    + """
size = 64
x, y = torch.randn(size, device="cuda"), torch.randn(size, device="cuda")
print(f"largest difference: {(add(x, y) - (x + y)).abs().max()}")
"""
)
CONTRACT = """
def inputs(device, n=100):
    return {"x": torch.randn(n, device=device), "y": torch.randn(n, device=device)}


def reference(x, y):
    return x + y


def launch(x, y):
    return add(x, y)


CHECKS = [{"n": 7}, {"n": 64}]
"""
TORCH = """
import torch


def inputs(device, m=8, n=16):
    return {"a": torch.randn(m, n, device=device), "b": torch.randn(n, m, device=device)}


def reference(a, b):
    return a.double() @ b.double()


def launch(a, b):
    return a @ b
"""
