"""A program that asks torch for a GPU, on the CPU."""

from __future__ import annotations

import multiprocessing
from multiprocessing.connection import Connection

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mla_var3.gpuless.cuda import cuda_on_cpu, on_the_cpu
from mla_var3.gpuless.device import Device
from mla_var3.gpuless.tensors import ALIGNMENT


def test_what_a_program_is_told_about_its_gpu() -> None:
    device = Device(capability=(9, 0), multiprocessors=3)
    with cuda_on_cpu(device):
        assert torch.cuda.get_device_capability("cuda") == (9, 0)
        assert torch.version.cuda is not None
        assert torch.cuda.get_device_properties(0).multi_processor_count == 3
        x = torch.ones(4, device="cuda:0", requires_grad=True)
        assert x.device == torch.device("cuda", 0)
        assert torch.empty(2, device=x.device).is_cuda
        assert x.cuda() is x
        copy = x.detach().cpu()
        with torch.no_grad():
            x.fill_(2.0)
        assert copy.tolist() == [1.0] * 4
        assert x.detach().to("cpu").tolist() == [2.0] * 4
        assert torch.nn.Linear(2, 2).to("cuda").weight.is_cuda
        generator = torch.Generator(device="cuda").manual_seed(1)
        assert torch.randn(3, generator=generator, device="cuda").shape == (3,)
        start, end = torch.cuda.Event(), torch.cuda.Event()
        start.record()
        end.record()
        assert start.elapsed_time(end) > 0
        with torch.cuda.stream(torch.cuda.Stream()):
            (x * 2).sum().backward()
        assert x.grad is not None
        assert x.grad.tolist() == [2.0] * 4
    assert torch.ones(1).device.type == "cpu"


def test_what_torch_would_compile_runs_as_it_is() -> None:
    with cuda_on_cpu():

        @torch.compile(fullgraph=True, dynamic=True)
        def doubled(x: torch.Tensor) -> torch.Tensor:
            return x + x.to("cuda")

        assert doubled(torch.ones(2, device="cuda")).tolist() == [2.0, 2.0]
        assert torch.compile(len) is len


@given(st.sampled_from(["cuda", "to"]), st.integers(1, 400))
def test_what_goes_to_a_gpu_is_a_copy(how: str, size: int) -> None:
    def moved(t: torch.Tensor) -> torch.Tensor:
        return t.cuda() if how == "cuda" else t.to("cuda")

    outside = torch.zeros(size)
    with cuda_on_cpu():
        for host in (outside, torch.zeros(size)):
            there = moved(host)
            moved(there).fill_(1)
            moved(there[:1]).fill_(2)
            assert not host.any()
            assert there.tolist() == [2.0] + [1.0] * (size - 1)


def test_seeds_of_a_gpu_are_those_of_the_cpu() -> None:
    with cuda_on_cpu():
        torch.cuda.manual_seed(7)
        state = torch.cuda.get_rng_state()
        first = torch.rand(4, device="cuda")
        torch.cuda.set_rng_state(state)
        again = torch.rand(4, device="cuda")
        torch.cuda.manual_seed_all(8)
        other = torch.rand(4, device="cuda")
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_what_is_asked_of_a_device() -> None:
    with cuda_on_cpu(Device((9, 0), 132)):
        told = torch.cuda.get_device_properties("cuda")
        assert (told.major, told.minor, told.multi_processor_count) == (9, 0, 132)
        assert told.shared_memory_per_block_optin == 232448
        assert told.shared_memory_per_multiprocessor == 233472
        assert told.max_threads_per_multi_processor == 2048
        assert not torch.cuda.is_current_stream_capturing()
        assert torch.cuda.get_arch_list() == ["sm_90"]
    assert Device((12, 0)).properties().max_threads_per_multi_processor == 1536


class Doubled(torch.autograd.Function):
    """Asks for a GPU in both directions."""

    @staticmethod
    def forward(ctx, x):
        assert x.is_cuda
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        assert grad.is_cuda
        made = torch.empty_like(grad, device="cuda")
        return made.copy_(grad).mul_(2)


@pytest.mark.parametrize("how", ["method", "function", "grad"])
def test_backward_functions_see_a_gpu(how: str) -> None:
    with cuda_on_cpu():
        x = torch.ones(3, device="cuda", requires_grad=True)
        y = Doubled.apply(x).sum()
        if how == "method":
            y.backward()
        elif how == "function":
            torch.autograd.backward([y])
        else:
            (x.grad,) = torch.autograd.grad(y, x)
        assert x.grad is not None
        assert x.grad.tolist() == [2.0] * 3


def test_operators_of_a_gpu_are_called() -> None:
    with cuda_on_cpu():

        @torch.library.custom_op("gpuless_test::twice", mutates_args=(), device_types="cuda")
        def twice(x: torch.Tensor) -> torch.Tensor:
            assert x.is_cuda
            return torch.empty(x.shape, device="cuda").copy_(x).mul_(2)

        assert twice(torch.ones(2, device="cuda")).tolist() == [2.0, 2.0]

        @torch.library.custom_op("gpuless_test::both", mutates_args=(), device_types="cpu")
        def both(x: torch.Tensor) -> torch.Tensor:
            return x + 1

        @both.register_kernel("cuda")
        def _(x: torch.Tensor) -> torch.Tensor:
            return x + 2

        assert both(torch.ones(1, device="cuda")).tolist() == [3.0]


def test_an_operator_in_the_form_of_a_library() -> None:
    with cuda_on_cpu():
        library = torch.library.Library("gpuless_test_library", "DEF")
        library.define("plus(Tensor x) -> Tensor")
        library.impl("plus", lambda x: x + int(x.is_cuda), "CUDA")
        library.impl("plus", lambda x: x - 1, "CPU")
        assert torch.ops.gpuless_test_library.plus(torch.zeros(1)).tolist() == [1.0]


@given(
    st.sampled_from(["sum", "views", "split", "softmax", "grown"]),
    st.integers(2, 9),
    st.sampled_from([torch.float32, torch.float16]),
)
def test_what_is_derived_lies_as_on_a_gpu(how: str, rows: int, dtype: torch.dtype) -> None:
    plain = torch.arange(rows * 10).reshape(rows, 10).to(dtype)
    with cuda_on_cpu():
        x = plain.cuda() + 0
        match how:
            case "sum":
                out = [x + x, torch.cat([x, x]), x.clone(), torch.empty_like(x)]
            case "views":
                out = [x.view(-1), x.t(), x[:1]]
            case "split":
                out = list((x + 1).chunk(2)) + list(x.max(0))
            case "softmax":
                out = [torch.softmax(x.float(), 0)]
            case _:
                out = [torch.sigmoid(x.float().requires_grad_())]
        assert not any(o.untyped_storage().data_ptr() % ALIGNMENT for o in out)
        if how == "views":
            x.fill_(3)
            assert all(bool((o == 3).all()) for o in out)


def test_gradients_go_through_what_was_moved() -> None:
    x = torch.linspace(-1, 1, 7)
    with cuda_on_cpu():
        a = x.cuda().requires_grad_()
        (torch.sigmoid(a).exp() * a).sum().backward()
    b = x.clone().requires_grad_()
    (torch.sigmoid(b).exp() * b).sum().backward()
    assert a.grad is not None
    assert torch.equal(a.grad, b.grad)


def test_a_tensor_whose_address_is_taken_is_owned() -> None:
    owned: list[torch.Tensor] = []
    with cuda_on_cpu(own=owned.append):
        x = torch.zeros(3, device="cuda")
        y = x + 1
        assert not owned
        y.data_ptr()
        with on_the_cpu():
            x.data_ptr()
    assert [t is y for t in owned] == [True]


def test_a_profile_of_a_gpu_alone_is_one_of_the_cpu() -> None:
    with cuda_on_cpu():
        activity = torch.profiler.ProfilerActivity.CUDA
        with torch.profiler.profile(activities=[activity], record_shapes=True) as made:
            torch.ones(3).add(1)
        assert "aten::add" in made.key_averages().table(sort_by="cuda_time_total")


def _seen_by_a_child(send: Connection) -> None:
    send.send((torch.cuda.get_device_capability(), str(torch.ones(1, device="cuda").device)))


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_process_that_is_spawned_has_the_same_gpu(method: str) -> None:
    with cuda_on_cpu(Device(capability=(10, 0))):
        context = multiprocessing.get_context(method)
        receive, send = context.Pipe(duplex=False)
        process = context.Process(target=_seen_by_a_child, args=(send,))
        process.start()
        assert receive.poll(60)
        assert receive.recv() == ((10, 0), "cuda:0")
        process.join()
