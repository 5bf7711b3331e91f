"""Compositions of kernels: ``KernelPipeline`` runs them in order, ``ConcurrentKernels`` in streams.

Both nest. On a CPU, concurrent kernels run one after another, from the last on where a check starts
blocks in reverse order.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from mla_var3.errors import PlanError
from mla_var3.runtime.execution import block_order
from mla_var3.runtime.kernel import Kernel, RuntimeObject
from mla_var3.runtime.tiling import Tiling
from mla_var3.workloads import Cost

if TYPE_CHECKING:
    import torch


class _Composite(RuntimeObject):
    def __init__(self, name: str, children: Sequence[RuntimeObject]) -> None:
        if not children:
            raise PlanError(f"{name}: needs at least one stage")
        names = [child.name for child in children]
        if len(set(names)) != len(names):
            raise PlanError(f"{name}: stage names {names} are not distinct")
        self.name = name
        self.children = list(children)

    def stages(self) -> list[tuple[str, Kernel]]:
        return [
            (path if child is kernel else f"{child.name}.{path}", kernel)
            for child in self.children
            for path, kernel in child.stages()
        ]

    @property
    def cost(self) -> Cost:
        return sum((child.cost for child in self.children), Cost(0, 0))


class KernelPipeline(_Composite):
    """Stages that run one after another; its outputs are those of the last stage.

    Args:
        _name: Name of the pipeline.
        stages: Runtime objects in launch order.
    """

    def __init__(self, *, _name: str, stages: Sequence[RuntimeObject]) -> None:
        super().__init__(_name, stages)

    @property
    def output_tensors(self) -> Mapping[str, torch.Tensor]:
        return self.children[-1].output_tensors

    def __call__(self) -> dict[str, torch.Tensor]:
        for child in self.children:
            child()
        return dict(self.output_tensors)


def _share_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether both have an element in common.

    Views with gaps are compared by their first element only, and tensors on ``meta``, which have
    no memory, by identity.
    """
    if a is b or a.device.type == "meta":
        return a is b
    start, other = a.data_ptr(), b.data_ptr()
    if not (a.is_contiguous() and b.is_contiguous()):
        return start == other
    return start < other + b.nbytes and other < start + a.nbytes


class ConcurrentKernels(_Composite):
    """Independent kernels that may overlap: a stream each on a GPU, one after another elsewhere.

    Args:
        _name: Name of the group.
        concurrent_kernels: Runtime objects that share no output, and read none of each other's.
        validate_joint_tiling_fn: Called with the tilings by stage path; raises TilingError when
            the stages cannot share the device under them.
    """

    def __init__(
        self,
        *,
        _name: str,
        concurrent_kernels: Sequence[RuntimeObject],
        validate_joint_tiling_fn: Callable[[Mapping[str, Tiling]], None] | None = None,
    ) -> None:
        super().__init__(_name, concurrent_kernels)
        self.validate_joint_tiling_fn = validate_joint_tiling_fn
        written = [
            (path, name, tensor)
            for path, kernel in self.stages()
            for name, tensor in kernel.output_tensors.items()
        ]
        for (one, _, a), (other, name, b) in itertools.combinations(written, 2):
            if one.split(".")[0] != other.split(".")[0] and _share_memory(a, b):
                raise PlanError(f"{_name}: {one} and {other} both write {name}")
        for path, kernel in self.stages():
            for (one, name, a), b in itertools.product(written, kernel.input_tensors.values()):
                if one.split(".")[0] != path.split(".")[0] and _share_memory(a, b):
                    raise PlanError(f"{_name}: {path} reads {name}, which {one} writes")
        self._side_streams: list[torch.cuda.Stream] = []

    @property
    def output_tensors(self) -> Mapping[str, torch.Tensor]:
        merged: dict[str, torch.Tensor] = {}
        for child in self.children:
            for name, tensor in child.output_tensors.items():
                key = name if name not in merged else f"{child.name}.{name}"
                merged[key] = tensor
        return merged

    def __call__(self) -> dict[str, torch.Tensor]:
        if self.validate_joint_tiling_fn is not None:
            self.validate_joint_tiling_fn(self.tilings())
        device = next(iter(self.output_tensors.values())).device
        if device.type == "cuda":
            self._run_on_streams(device)
        else:
            # None waits for another, so that the last may well be the first to run.
            backwards = block_order() == "reverse"
            for child in reversed(self.children) if backwards else self.children:
                child()
        return dict(self.output_tensors)

    def _run_on_streams(self, device: torch.device) -> None:
        import torch

        main = torch.cuda.current_stream(device)
        while len(self._side_streams) < len(self.children) - 1:
            self._side_streams.append(torch.cuda.Stream(device))
        for stream in self._side_streams:
            stream.wait_stream(main)
        self.children[0]()
        for child, stream in zip(self.children[1:], self._side_streams, strict=True):
            with torch.cuda.stream(stream):
                child()
        for stream in self._side_streams:
            main.wait_stream(stream)
