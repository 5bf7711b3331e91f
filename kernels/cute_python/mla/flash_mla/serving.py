"""v5 behind the calls that servers make: tokens anywhere in a cache, sequences of any lengths.

v5 takes a contiguous cache in which all sequences are equally long. So the tokens of each sequence
are gathered, and sequences that are equally long share a launch. That shows what the kernel
computes, not what it takes: a kernel that reads pages needs neither.
"""

from __future__ import annotations

import dataclasses
import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from mla_var3.kernel.cute_python.kit.slabs import ROPE
from mla_var3.kernel.cute_python.mla.flash_mla.flash_mla_v5.flash_mla_v5 import Plan
from mla_var3.languages.cute.configuration import Configuration
from mla_var3.languages.cute.export import export
from mla_var3.languages.cute.loader import Library
from mla_var3.runtime import RuntimeObject

DTYPES = {torch.bfloat16: "bf16", torch.float16: "fp16"}
#: Streaming multiprocessors that are emulated: blocks that stay and have no work cost time.
EMULATED_SMS = 4


@dataclass(frozen=True, kw_only=True)
class ServedPlan(Plan):
    """v5 with the softmax scale that its caller gives."""

    given: float = dataclasses.field(default=1.0, metadata={"hidden": True})

    @property
    def scale(self) -> float:
        return self.given


@dataclass(frozen=True)
class Cache:
    """Latents [tokens, 512] and rotary parts [tokens, at most 64] of all sequences."""

    z: torch.Tensor
    kpe: torch.Tensor


def attend(
    q: torch.Tensor,
    qpe: torch.Tensor,
    cache: Cache,
    tokens: Sequence[torch.Tensor],
    scale: float,
    causal: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Latent attention of each sequence over its own tokens of the cache.

    Args:
        q: Latent queries [b, s, h, 512].
        qpe: Rotary queries [b, s, h, at most 64].
        cache: Where the tokens are.
        tokens: Of each sequence, the rows of the cache in order; there may be none.
        scale: Softmax scale.
        causal: Bottom-right aligned mask.

    Returns:
        o [b, s, h, 512], and the natural LSE [b, h, s]: 0 and -inf for rows that see no key.
    """
    b, s, h, _ = q.shape
    o = torch.zeros_like(q)
    lse = torch.full((b, h, s), -math.inf, dtype=torch.float32, device=q.device)
    for length in sorted({len(rows) for rows in tokens} - {0}):
        members = [i for i, rows in enumerate(tokens) if len(rows) == length]
        group = torch.tensor(members, device=q.device)
        rows = torch.stack([tokens[i].long() for i in members])
        part = ServedPlan(
            b=len(members), h=h, s=s, t=length, causal=causal, dtype=DTYPES[q.dtype], given=scale
        )
        found = launched(
            part,
            *(x[group].transpose(1, 2).contiguous() for x in (q, whole(qpe))),
            cache.z[rows].contiguous(),
            whole(cache.kpe)[rows].contiguous(),
        )
        o[group], lse[group] = found["o"].transpose(1, 2), found["lse"]
    return o, lse


def whole(x: torch.Tensor) -> torch.Tensor:
    """Rotary parts as wide as v5 takes them: what is missing is 0, which changes no score."""
    return torch.nn.functional.pad(x, (0, ROPE - x.shape[-1]))


def launched(plan: ServedPlan, *inputs: torch.Tensor) -> dict[str, torch.Tensor]:
    """Outputs of v5, on the GPU where its inputs are there, else emulated."""
    # Tests may run where tensors only say that they are on a GPU.
    with torch._C.DisableTorchFunction():
        on_gpu = inputs[0].is_cuda
        sms = torch.cuda.get_device_properties().multi_processor_count if on_gpu else EMULATED_SMS
        machine = dataclasses.replace(plan.target, sm_count=sms)
        made = dataclasses.replace(plan, machine=machine).plan(*inputs)
        if on_gpu:
            share(made, (plan.dtype, plan.causal))
        return made()


def work(b: int, h: int, s: int, t: int) -> int:
    """Tiles of 64 rows and 64 keys of a problem."""
    return b * -(-h * s // 64) * -(-t // 64)


_libraries: dict[object, Library] = {}


def share(made: RuntimeObject, kind: tuple[object, ...]) -> None:
    """Have every launch of a kind and tiling use one library: v5 is compiled for any extents."""
    for _, kernel in made.stages():
        written = next(iter(kernel.output_tensors.values())).dtype
        key = (kernel.name, kernel.tiling, written, *kind)
        if key not in _libraries:
            major, minor = torch.cuda.get_device_capability()
            one = Configuration(kernel.tiling.values(), *kernel.host())
            with tempfile.TemporaryDirectory() as folder:
                export(kernel.name, [one], f"sm_{major}{minor}", Path(folder), workers=1)
                _libraries[key] = Library(Path(folder))
        kernel.use(_libraries[key])
