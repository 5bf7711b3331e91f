"""CUDA graphs on the CPU: captured once, done at each replay."""

from __future__ import annotations

import pytest
import torch

from mla_var3.gpuless import streams
from mla_var3.gpuless.cuda import cuda_on_cpu


def test_a_graph_does_its_work_when_it_is_replayed() -> None:
    done: list[int] = []
    with cuda_on_cpu():
        x = torch.ones(3, device="cuda")
        out = torch.zeros(3, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            assert torch.cuda.is_current_stream_capturing()
            streams.submit(lambda: done.append(1))
            made = x * 2
            x.add_(1)
            out.copy_(made)
        assert not torch.cuda.is_current_stream_capturing()
        assert (done, x.tolist(), out.tolist()) == ([], [1.0] * 3, [0.0] * 3)
        graph.replay()
        assert (done, x.tolist(), out.tolist()) == ([1], [2.0] * 3, [2.0] * 3)
        x.fill_(10)
        graph.replay()
        assert (made.tolist(), x.tolist()) == ([20.0] * 3, [11.0] * 3)
        graph.reset()
        graph.replay()
        assert x.tolist() == [11.0] * 3


def test_one_capture_at_a_time_and_none_is_left_open() -> None:
    with cuda_on_cpu():
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph), pytest.raises(RuntimeError, match="captured already"):
            torch.cuda.CUDAGraph().capture_begin()
        with pytest.raises(ZeroDivisionError), torch.cuda.graph(graph):
            raise ZeroDivisionError
        assert not torch.cuda.is_current_stream_capturing()


def test_streams_and_events_have_finished() -> None:
    with cuda_on_cpu():
        stream, event = torch.cuda.Stream(), torch.cuda.Event(enable_timing=True)
        with stream, torch.cuda.stream(stream):
            assert stream.record_event(event) is event
        stream.wait_event(event)
        assert (stream.query(), event.query(), stream.cuda_stream) == (True, True, 0)
        assert event.elapsed_time(torch.cuda.Event()) > 0


def test_a_tensor_is_used_on_any_stream() -> None:
    with cuda_on_cpu():
        x = torch.ones(3, device="cuda")
        assert x.record_stream(torch.cuda.current_stream()) is None
        x.record_stream(torch.cuda.Stream())
        assert x.tolist() == [1.0] * 3
