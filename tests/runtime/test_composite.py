from __future__ import annotations

import contextlib
import math
from types import SimpleNamespace

import pytest
import torch

from mla_var3.errors import PlanError, TilingError
from mla_var3.runtime import ConcurrentKernels, KernelPipeline
from mla_var3.runtime.execution import starting
from mla_var3.workloads import Cost

from .toys import ToyTiling, kernel


def chain(x: torch.Tensor, *factors: float) -> tuple[list, torch.Tensor]:
    """Stages that multiply ``x`` by each factor in turn, and what they must give."""
    stages, expected = [], x.clone()
    for i, factor in enumerate(factors):
        stages.append(kernel(f"by_{i}", x, factor=factor))
        x, expected = stages[-1].output_tensors["y"], expected * factor
    return stages, expected


def nested(x: torch.Tensor) -> KernelPipeline:
    """A pipeline of a concurrent group of (a pipeline of two stages, one stage), and a stage."""
    twice, _ = chain(x, 2.0, 3.0)
    inner = KernelPipeline(_name="inner", stages=twice)
    side = kernel("side", x, factor=5.0, output="z")
    both = ConcurrentKernels(_name="both", concurrent_kernels=[inner, side])
    last = kernel("last", twice[-1].output_tensors["y"], factor=7.0, output="out")
    return KernelPipeline(_name="root", stages=[both, last])


def test_a_pipeline_runs_in_order_and_gives_the_last_outputs():
    stages, expected = chain(torch.arange(20.0), 2.0, 3.0, 5.0)
    pipeline = KernelPipeline(_name="p", stages=stages)
    outputs = pipeline()
    assert list(outputs) == ["y"]
    assert torch.equal(outputs["y"], expected)
    assert pipeline.cost == Cost(3 * 20, 3 * 160)
    assert (pipeline.flops, pipeline.bytes) == (60, 480)


def test_three_levels_run_and_know_their_paths():
    x = torch.arange(20.0)
    root = nested(x)
    assert torch.equal(root()["out"], 42 * x)
    assert [path for path, _ in root.stages()] == [
        "both.inner.by_0",
        "both.inner.by_1",
        "both.side",
        "last",
    ]
    assert root.tilings() == {path: ToyTiling() for path, _ in root.stages()}
    assert root.cost == Cost(4 * 20, 4 * 160)
    both = root.children[0]
    assert torch.equal(both.output_tensors["z"], 5 * x)


def test_a_tiling_set_on_a_stage_is_seen_from_the_root():
    root = nested(torch.arange(20.0))
    dict(root.stages())["both.side"].tiling = ToyTiling(tile=8)
    assert root.tilings()["both.side"].tile == 8


@pytest.mark.parametrize("kind", [KernelPipeline, ConcurrentKernels])
def test_names_are_distinct_and_there_is_a_stage(kind):
    children = "stages" if kind is KernelPipeline else "concurrent_kernels"
    x = torch.arange(4.0)
    with pytest.raises(PlanError, match=r"p: stage names \['a', 'a'\] are not distinct"):
        kind(_name="p", **{children: [kernel("a", x), kernel("a", x)]})
    with pytest.raises(PlanError, match="p: needs at least one stage"):
        kind(_name="p", **{children: []})


def test_the_same_name_may_occur_at_different_depths():
    x = torch.arange(4.0)
    inner = KernelPipeline(_name="a", stages=[kernel("a", x)])
    assert [p for p, _ in KernelPipeline(_name="a", stages=[inner]).stages()] == ["a.a"]


class TestConcurrent:
    def test_outputs_of_one_name_are_told_apart(self):
        x = torch.arange(4.0)
        group = ConcurrentKernels(
            _name="g", concurrent_kernels=[kernel("a", x), kernel("b", x, factor=3.0)]
        )
        outputs = group()
        assert list(outputs) == ["y", "b.y"]
        assert torch.equal(outputs["y"], 2 * x)
        assert torch.equal(outputs["b.y"], 3 * x)

    @pytest.mark.parametrize("view", [lambda y: y, lambda y: y.view(2, 2).view(4), lambda y: y[1:]])
    def test_two_children_may_not_write_one_tensor(self, view):
        x, y = torch.arange(4.0), torch.empty(4)
        mine = view(y)
        with pytest.raises(PlanError, match=r"g: a and b\.c both write y"):
            ConcurrentKernels(
                _name="g",
                concurrent_kernels=[
                    kernel("a", x, y),
                    KernelPipeline(_name="b", stages=[kernel("c", x[: len(mine)], mine)]),
                ],
            )

    def test_no_child_reads_what_another_writes(self):
        x, y = torch.arange(4.0), torch.empty(4)
        later = KernelPipeline(_name="b", stages=[kernel("c", y[1:])])
        with pytest.raises(PlanError, match=r"g: b\.c reads y, which a writes"):
            ConcurrentKernels(_name="g", concurrent_kernels=[kernel("a", x, y), later])
        inner = KernelPipeline(_name="b", stages=[kernel("a", x, y), kernel("c", y)])
        ConcurrentKernels(_name="g", concurrent_kernels=[inner, kernel("d", x)])

    def test_in_reverse_order_what_reads_a_copy_of_its_name_shows(self):
        """Told as an input is a copy: only the order says that one reads what another writes."""
        x, y, z = torch.arange(4.0), torch.full((4,), math.nan), torch.empty(4)
        first, second = kernel("a", x, y), kernel("b", y, z)
        second.input_tensors = {"x": y.clone()}
        group = ConcurrentKernels(_name="g", concurrent_kernels=[first, second])
        for order, right in (("forward", True), ("reverse", False)):
            y.fill_(math.nan)
            with starting(order):
                group()
            assert torch.equal(z, 4 * x) is right

    def test_without_memory_a_tensor_is_told_by_identity(self):
        x, y = torch.empty(4, device="meta"), torch.empty(4, device="meta")
        ConcurrentKernels(_name="g", concurrent_kernels=[kernel("a", x), kernel("b", x)])
        with pytest.raises(PlanError, match="g: a and b both write y"):
            ConcurrentKernels(_name="g", concurrent_kernels=[kernel("a", x, y), kernel("b", x, y)])

    def test_views_with_gaps_are_told_by_their_first_element(self):
        x, y = torch.arange(4.0), torch.empty(4, 2)
        group = ConcurrentKernels(
            _name="g",
            concurrent_kernels=[kernel("a", x, y[:, 0]), kernel("b", x, y[:, 1], factor=3.0)],
        )
        group()
        assert torch.equal(y, torch.stack([2 * x, 3 * x], dim=1))
        with pytest.raises(PlanError, match="both write"):
            ConcurrentKernels(
                _name="g", concurrent_kernels=[kernel("a", x, y[:, 0]), kernel("b", x, y[:, 0])]
            )

    def test_halves_of_one_tensor_are_two_tensors(self):
        x, y = torch.arange(8.0), torch.empty(8)
        group = ConcurrentKernels(
            _name="g",
            concurrent_kernels=[kernel("a", x[:4], y[:4]), kernel("b", x[4:], y[4:], factor=3.0)],
        )
        group()
        assert torch.equal(y, torch.cat([2 * x[:4], 3 * x[4:]]))

    def test_one_child_may_write_a_tensor_twice(self):
        x, y = torch.arange(4.0), torch.empty(4)
        inner = KernelPipeline(_name="b", stages=[kernel("c", x, y), kernel("d", x, y, factor=4.0)])
        group = ConcurrentKernels(_name="g", concurrent_kernels=[inner])
        assert torch.equal(group()["y"], 4 * x)

    def test_the_joint_tiling_is_validated_at_each_run(self):
        x = torch.arange(4.0)
        seen = []

        def validate(tilings):
            seen.append(tilings)
            if sum(t.tile for t in tilings.values()) > 40:
                raise TilingError("a.tile + b.tile exceeds 40")

        group = ConcurrentKernels(
            _name="g",
            concurrent_kernels=[kernel("a", x), kernel("b", x)],
            validate_joint_tiling_fn=validate,
        )
        group()
        assert seen == [{"a": ToyTiling(), "b": ToyTiling()}]
        group.children[1].stages()[0][1].tiling = ToyTiling(tile=32)
        with pytest.raises(TilingError, match="exceeds 40"):
            group()

    def test_on_a_gpu_all_but_the_first_get_a_stream_and_the_main_one_waits(self, monkeypatch):
        log: list[tuple] = []

        class Stream:
            count = 0

            def __init__(self, device=None):
                Stream.count += 1
                self.name = f"s{Stream.count}"

            def wait_stream(self, other):
                log.append((self.name, "waits for", other.name))

        main = SimpleNamespace(
            name="main", wait_stream=lambda other: log.append(("main", "waits for", other.name))
        )
        current = [main]

        @contextlib.contextmanager
        def stream(chosen):
            current.append(chosen)
            yield
            current.pop()

        fake = SimpleNamespace(current_stream=lambda _=None: main, Stream=Stream, stream=stream)
        monkeypatch.setattr(torch, "cuda", fake)
        tensor = SimpleNamespace(device=torch.device("cuda"))
        names = ("a", "b", "c")
        group = ConcurrentKernels(
            _name="g", concurrent_kernels=[kernel(n, torch.arange(4.0)) for n in names]
        )
        monkeypatch.setattr(
            ConcurrentKernels, "output_tensors", property(lambda _: {"y": tensor}), raising=True
        )
        for child in group.children:
            monkeypatch.setattr(
                type(child),
                "__call__",
                lambda self: log.append((current[-1].name, "runs", self.name)),
            )
        expected = [
            ("s1", "waits for", "main"),
            ("s2", "waits for", "main"),
            ("main", "runs", "a"),
            ("s1", "runs", "b"),
            ("s2", "runs", "c"),
            ("main", "waits for", "s1"),
            ("main", "waits for", "s2"),
        ]
        group()
        assert log == expected
        log.clear()
        group()  # The streams are kept.
        assert log == expected


@pytest.mark.gpu
def test_concurrent_streams_on_a_gpu():
    x = torch.arange(4096.0, device="cuda")
    root = nested(x)
    for _ in range(10):
        assert torch.equal(root()["out"], 42 * x)
        assert torch.equal(root.children[0].output_tensors["z"], 5 * x)
