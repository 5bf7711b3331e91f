"""Interpret a cuTile kernel of your own on the CPU, and let it find the mistake.

The first softmax below forgets that the last tile of a row reaches past its end: the padding of a
load is undetermined unless it is chosen, so the sum takes in whatever was there. On a GPU this
often goes unseen, because the padding often happens to be harmless. The second one chooses -inf.

Run it with ``python examples/interpret_your_kernel.py``; no GPU is needed.
"""

import cuda.tile as ct
import torch

from mla_var3.interpreter import LaunchReport, launch

ConstInt = ct.Constant[int]


@ct.kernel
def softmax_with_a_bug(x, y, TILE: ConstInt):
    """Softmax of each row, one block per row."""
    row = ct.bid(0)
    tile = ct.load(x, (row, 0), (1, TILE))  # the padding is undetermined
    numerator = ct.exp(tile - ct.max(tile, axis=1, keepdims=True))
    ct.store(y, (row, 0), numerator / ct.sum(numerator, axis=1, keepdims=True))


@ct.kernel
def softmax(x, y, TILE: ConstInt):
    """The same, with padding that no sum notices."""
    row = ct.bid(0)
    tile = ct.load(x, (row, 0), (1, TILE), padding_mode=ct.PaddingMode.NEG_INF)
    numerator = ct.exp(tile - ct.max(tile, axis=1, keepdims=True))
    ct.store(y, (row, 0), numerator / ct.sum(numerator, axis=1, keepdims=True))


def interpret(kernel: ct.kernel) -> tuple[LaunchReport, torch.Tensor]:
    """Runs a softmax kernel on rows of 100 elements in tiles of 128."""
    x = torch.randn(4, 100, generator=torch.Generator().manual_seed(0))
    y = torch.empty_like(x)
    report = launch((x.shape[0],), kernel, (x, y, 128))
    error = (y - torch.softmax(x, dim=1)).abs().max().item()
    print(report.summary())
    print(f"  largest error against torch: {error:.1e}\n")
    return report, y


def main() -> None:
    """Interprets both kernels: the first ends with findings, the second with none."""
    report, _ = interpret(softmax_with_a_bug)
    assert report.errors, "the mistake must be found"
    report, _ = interpret(softmax)
    assert not report.diagnostics, "the right kernel must be clean"


if __name__ == "__main__":
    main()
