"""Tensors that would be on a GPU: where they lie, and that they are the same."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from mla_var3.gpuless.tensors import ALIGNMENT, OnCpu, aligned


@given(st.integers(1, 9), st.integers(1, 40), st.sampled_from([torch.float16, torch.int32]))
def test_a_tensor_lies_as_on_a_gpu_and_is_the_same(rows: int, columns: int, dtype) -> None:
    whole = torch.arange(rows * columns).to(dtype).reshape(rows, columns)
    for tensor in (whole, whole.t(), whole[rows // 2 :]):
        moved = aligned(tensor)
        assert moved.untyped_storage().data_ptr() % ALIGNMENT == 0
        assert moved.untyped_storage().nbytes() == tensor.untyped_storage().nbytes()
        assert torch.equal(moved, tensor)
        assert moved.stride() == tensor.stride()


def test_gradients_of_halves_are_summed_as_on_a_gpu() -> None:
    torch.manual_seed(0)
    grown = 0.1 * torch.randn(1200, 16).half()
    with OnCpu():
        x = torch.randn(1200, 16, device="cuda").half()
        weight, bias = (torch.ones(16, requires_grad=True).half() for _ in range(2))
        weight.retain_grad()
        bias.retain_grad()
        y = torch.nn.functional.layer_norm(x, (16,), weight, bias=bias)
        y.backward(grown)
    assert y.dtype == torch.float16
    assert bias.grad is not None
    exact = grown.double().sum(0)
    assert torch.equal(bias.grad, exact.half())


def test_a_tensor_of_nothing_stays() -> None:
    empty = torch.empty(0)
    assert aligned(empty) is empty
