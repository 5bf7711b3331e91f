"""Examples that glossary pages work out by hand are right."""

from __future__ import annotations

import re

import torch

from mla_var3.paths import repo_root


def test_an_online_softmax_by_hand_gives_what_a_softmax_gives():
    page = (repo_root() / "docs/glossary/online-softmax.md").read_text(encoding="utf-8")
    rows = re.findall(r"tile: (\d), (\d) \|", page)
    scores = torch.tensor([[float(x) for x in row] for row in rows])
    values = torch.tensor([[10.0, 20.0], [30.0, 40.0]])
    assert scores.shape == values.shape
    best, total, acc = torch.tensor(-1e30), torch.tensor(0.0), torch.tensor(0.0)
    for tile, value in zip(scores, values, strict=True):
        new = torch.maximum(best, tile.max())
        weights, shrink = (tile - new).exp(), (best - new).exp()
        total, acc = total * shrink + weights.sum(), acc * shrink + weights @ value
        best = new
        assert f"{total:.3f}" in page
        assert f"{acc:.3f}" in page
    out = scores.flatten().softmax(0) @ values.flatten()
    assert torch.allclose(acc / total, out)
    assert page.count(f"**{out:.2f}**") == 2
