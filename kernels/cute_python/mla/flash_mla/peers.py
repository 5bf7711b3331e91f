"""The tests of FlashMLA and of FlashInfer for dense decode, with v5 in place of their kernels.

Their test files run as they are, from a checkout; what they import of their library are the modules
here. Of FlashMLA's calls ``get_mla_metadata`` and ``flash_mla_with_kvcache`` are answered, of
FlashInfer's ``BatchMLAPagedAttentionWrapper``; see ``serving`` for what is v5 and what is not.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import torch

from mla_var3.kernel.cute_python.mla.flash_mla.serving import Cache, attend, work

LOG2_E = math.log2(math.e)


# ---- FlashMLA --------------------------------------------------------------------------------


class Schedule:
    """What stands for FlashMLA's schedule: v5 makes its own in each launch."""


def get_mla_metadata(*_: Any, **__: Any) -> tuple[Schedule, None]:
    """A schedule; takes anything, as theirs does."""
    return Schedule(), None


def flash_mla_with_kvcache(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    block_table: torch.Tensor,
    cache_seqlens: torch.Tensor,
    head_dim_v: int,
    tile_scheduler_metadata: Schedule,
    num_splits: None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Dense decode over pages.

    Args:
        q: [b, s, h, 576].
        k_cache: [pages, page, heads of the cache, 576].
        block_table: Pages of each sequence in order, [b, n]; what lies past its end is not read.
        cache_seqlens: Keys of each sequence, [b].
        head_dim_v: 512.
        tile_scheduler_metadata: By ``get_mla_metadata``.
        num_splits: None.
        softmax_scale: One over the root of the width of q unless given.
        causal: Bottom-right aligned mask.

    Returns:
        o [b, s, h, 512], and the natural LSE [b, h, s]: 0 and +inf for rows that see no key.
    """
    assert isinstance(tile_scheduler_metadata, Schedule)
    assert num_splits is None
    b, _, h, width = q.shape
    _, page, shared, _ = k_cache.shape
    scale = width**-0.5 if softmax_scale is None else softmax_scale
    # Each head of the cache with its query heads is a sequence of its own.
    folded = q.unflatten(2, (shared, h // shared)).transpose(1, 2).flatten(0, 1)
    rows = k_cache.flatten(0, 2)  # token by token, head by head
    tokens = [
        token * shared + head
        for pages, length in zip(block_table, cache_seqlens.tolist(), strict=True)
        for token in [paged(pages, page, length)]
        for head in range(shared)
    ]
    o, lse = attend(
        folded[..., :head_dim_v], folded[..., head_dim_v:],
        Cache(rows[:, :head_dim_v], rows[:, head_dim_v:]), tokens, scale, causal,
    )  # fmt: skip
    o = o.unflatten(0, (b, shared)).transpose(1, 2).flatten(2, 3)
    lse = lse.unflatten(0, (b, shared)).flatten(1, 2)
    return o, lse.masked_fill(lse == -math.inf, math.inf)


def paged(pages: torch.Tensor, page: int, length: int) -> torch.Tensor:
    """Rows of the cache that hold the tokens of a sequence, in order."""
    token = torch.arange(length, device=pages.device)
    return pages.long()[token // page] * page + token % page


# ---- FlashInfer ------------------------------------------------------------------------------


class BatchMLAPagedAttentionWrapper:
    """FlashInfer's wrapper: planned by index pointers, then run on two caches."""

    def __init__(self, float_workspace_buffer: torch.Tensor, *_: Any, **__: Any) -> None:
        """Takes the workspace and what else theirs takes; nothing of it is needed."""

    def plan(
        self,
        qo_indptr: torch.Tensor,
        kv_indptr: torch.Tensor,
        kv_indices: torch.Tensor,
        kv_len_arr: torch.Tensor,
        num_heads: int,
        head_dim_ckv: int,
        head_dim_kpe: int,
        page_size: int,
        causal: bool,
        sm_scale: float,
        q_data_type: torch.dtype,
        kv_data_type: torch.dtype,
        *,
        lse_mode: str = "base2",
    ) -> None:
        """Remember which pages hold which tokens of each sequence."""
        assert (q_data_type, lse_mode) == (kv_data_type, "base2")
        starts, pages = kv_indptr.tolist(), kv_indices
        self._rows = qo_indptr.tolist()
        self._tokens = [
            paged(pages[starts[i] : starts[i + 1]], page_size, length)
            for i, length in enumerate(kv_len_arr.tolist())
        ]
        self._causal, self._scale = causal, sm_scale

    def run(
        self,
        q_nope: torch.Tensor,
        q_pe: torch.Tensor,
        ckv_cache: torch.Tensor,
        kpe_cache: torch.Tensor,
        out: torch.Tensor | None = None,
        lse: torch.Tensor | None = None,
        return_lse: bool = False,
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """Attention of q_nope [rows, h, 512] and q_pe [rows, h, at most 64] over paged caches.

        Returns:
            o [rows, h, 512]; with ``return_lse`` the LSE to base 2 as well, [rows, h].
        """
        out = torch.empty_like(q_nope) if out is None else out
        shape = q_nope.shape[:2]
        sums = torch.empty(shape, dtype=torch.float32, device=q_nope.device) if lse is None else lse
        cache = Cache(ckv_cache.flatten(0, 1), kpe_cache.flatten(0, 1))
        counts = [b - a for a, b in zip(self._rows, self._rows[1:], strict=False)]
        for count in sorted(set(counts)):
            chosen = [i for i, own in enumerate(counts) if own == count]
            rows = torch.tensor([[self._rows[i] + r for r in range(count)] for i in chosen])
            rows = rows.to(q_nope.device)
            o, found = attend(
                q_nope[rows], q_pe[rows], cache, [self._tokens[i] for i in chosen], self._scale,
                self._causal,
            )  # fmt: skip
            out[rows], sums[rows] = o, found.transpose(1, 2) * LOG2_E
        return (out, sums) if return_lse else out


# ---- running their tests ---------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Case:
    """One of their cases.

    Attributes:
        name: What tells it from others.
        tiles: Tiles of 64 rows and 64 keys, which say how long an emulator takes.
        run: Runs it; raises where it fails.
    """

    name: str
    tiles: int
    run: Callable[[], Any]


def module(name: str, **members: Any) -> ModuleType:
    """A module with these members; a package if others are in it."""
    made = ModuleType(name)
    vars(made).update(members, __path__=[])
    return made


@contextmanager
def standing_in(folder: Path, *modules: ModuleType) -> Iterator[None]:
    """These modules are imported, and others from ``folder`` first."""
    fresh = {made.__name__: made for made in modules}
    with (
        mock.patch.dict(sys.modules, fresh),
        mock.patch.object(sys, "path", [str(folder), *sys.path]),
    ):
        yield


@contextmanager
def flashmla(checkout: Path) -> Iterator[list[Case]]:
    """Cases of FlashMLA's test of dense decode, without its timing.

    Args:
        checkout: FlashMLA's.
    """
    shim = module(
        "flash_mla",
        get_mla_metadata=get_mla_metadata,
        flash_mla_with_kvcache=flash_mla_with_kvcache,
    )
    # Its timing alone uses Triton.
    others = [] if importlib.util.find_spec("triton") else triton_modules()
    with standing_in(checkout / "tests", shim, *others):
        tests = importlib.import_module("test_flash_mla_dense_decoding")
        found: list[Any] = []
        with mock.patch.object(tests, "test_flash_mla", found.append):
            tests.main(torch.bfloat16)
        yield [
            Case(
                str(dataclasses.replace(case, test_performance=False)),
                work(case.b * case.h_kv, case.h_q // case.h_kv, case.s_q, case.s_k),
                partial(tests.test_flash_mla, dataclasses.replace(case, test_performance=False)),
            )
            for case in found
        ]


def triton_modules() -> list[ModuleType]:
    """What a test file that defines Triton kernels asks for as it is imported."""
    language = module("triton.language", constexpr=object)
    return [module("triton", jit=lambda function: function, language=language), language]


#: FlashInfer's tests that are dense decode over 16 bits; one back end stands for both.
DENSE = (
    "test_batch_mla_without_kpe",
    "test_batch_mla_varlen_page_attention",
    "test_batch_mla_oob_kv_nan",
    "test_batch_mla_page_attention",
)


@contextmanager
def flashinfer(checkout: Path) -> Iterator[list[Case]]:
    """Cases of FlashInfer's tests of dense decode, as its marks combine their parameters.

    Args:
        checkout: FlashInfer's.
    """
    # Of all folders that are called so, theirs.
    named = module("tests")
    named.__path__ = [str(checkout / "tests")]
    with standing_in(checkout, named, *flashinfer_modules()):
        tests = importlib.import_module("tests.attention.test_deepseek_mla")
        yield [case for name in DENSE for case in combined(name, getattr(tests, name))]


def flashinfer_modules() -> list[ModuleType]:
    """What the test file imports of FlashInfer; only the wrapper does anything."""

    def absent(*_: Any, **__: Any) -> Any:
        raise NotImplementedError("this part of FlashInfer is not stood in for")

    names = ("gen_batch_mla_module", "gen_batch_prefill_module", "gen_single_prefill_module")
    mla = module("flashinfer.mla", BatchMLAPagedAttentionWrapper=BatchMLAPagedAttentionWrapper)
    attention = module("flashinfer.jit.attention", **dict.fromkeys(names, absent))
    jit = module("flashinfer.jit", build_jit_specs=absent, attention=attention)
    archs = {f"is_sm{sm}a_supported": partial(_is, sm) for sm in (90, 100, 110)}
    utils = module(
        "flashinfer.utils",
        has_flashinfer_jit_cache=lambda: True,
        GPUArchitectureError=NotImplementedError,
        **archs,
    )
    return [module("flashinfer", mla=mla, jit=jit, utils=utils), mla, jit, attention, utils]


def _is(sm: int, device: torch.device) -> bool:
    major, minor = torch.cuda.get_device_capability(device)
    return 10 * major + minor == sm


def combined(name: str, test: Callable[..., Any]) -> Iterator[Case]:
    """A test's cases by its marks, those of one back end alone."""
    choices: list[dict[str, Any]] = [{}]
    for mark in getattr(test, "pytestmark", ()):
        key, values = mark.args
        values = ["fa3"] if key == "backend" else values
        choices = [{**choice, key: value} for choice in choices for value in values]
    for choice in choices:
        said = ", ".join(f"{key}={value}" for key, value in sorted(choice.items()))
        yield Case(f"{name}({said})", _tiles(choice), partial(test, **choice))


def _tiles(choice: Mapping[str, Any]) -> int:
    sizes: Sequence[int] = [v for k, v in choice.items() if k.startswith("kv_len")] or [97]
    b, h, s = (choice.get(k, d) for k, d in (("batch_size", 2), ("num_heads", 16), ("qo_len", 3)))
    return sum(work(b, h, s, t) for t in sizes)
