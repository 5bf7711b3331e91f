"""Counts FLOPs of torch calls inside a block, by the formulas of torch's FlopCounter.

The counter itself loads torch's compiler, which takes seconds.
"""

from __future__ import annotations

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry


class Counting(TorchDispatchMode):
    """Counts inside a ``with`` block.

    Attributes:
        flops: So far; matrix products, convolutions and attention alone, as torch has it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.flops = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # Else the first operator loads torch's compiler.

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        formula = flop_registry.get(func._overloadpacket)
        if formula is not None:
            self.flops += int(formula(*args, **(kwargs or {}), out_val=out))
        return out
