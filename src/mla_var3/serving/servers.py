"""Entry points of vLLM and SGLang: our dense decode in place of their FlashMLA's.

Either server calls its entry point in each process that it makes. Nothing is replaced unless
``MLA_VAR3_IN_SERVER=1`` is set there. What is not dense decode in 16 bits stays FlashMLA's; what is
goes to ours, which raises where it does not fit and never falls back.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from mla_var3.serving import flashmla, kinds, operators

#: Set to 1, the entry points replace.
ASKED = "MLA_VAR3_IN_SERVER"
#: Where each server takes FlashMLA's functions from (vLLM 0.33.0, SGLang 0.5.23).
VLLM = "vllm.v1.attention.ops.flashmla"
SGLANG = "sglang.kernels.ops.attention.flash_mla_interface"
#: What keeps the schedule of a captured step, in a buffer that is too small for ours.
SGLANG_BUFFER = "sglang.srt.layers.attention.flashmla_backend.FlashMLABackend.init_cuda_graph_state"
#: Rows of the largest schedule per SM: a part, and two places to tell for its one tile.
PER_SM = 3

_log = logging.getLogger(__name__)


def vllm() -> None:
    """The entry point of the group ``vllm.general_plugins``."""
    if os.environ.get(ASKED) == "1":
        replace(importlib.import_module(VLLM), flashmla.get_mla_metadata)


def sglang() -> None:
    """The entry point of the group ``sglang.srt.plugins``."""
    if os.environ.get(ASKED) != "1":
        return
    replace(importlib.import_module(SGLANG), _as_tensors, _whole_rows)
    hooks = importlib.import_module("sglang.srt.plugins.hook_registry")
    hooks.HookRegistry.register(SGLANG_BUFFER, _enlarge, hooks.HookType.AFTER)


def replace(
    module: ModuleType,
    schedule: Callable[..., Any],
    table: Callable[[torch.Tensor], torch.Tensor] = lambda given: given,
) -> None:
    """Put our dense decode where a server takes FlashMLA's from, and where it has already.

    Args:
        module: Has ``get_mla_metadata`` and ``flash_mla_with_kvcache``.
        schedule: Makes a schedule of lengths, rows and heads of the cache.
        table: What our decode is given for a page table.
    """
    their_schedule, their_call = module.get_mla_metadata, module.flash_mla_with_kvcache
    if their_call.__module__ == __name__:
        return
    told = False

    def get_mla_metadata(*given: Any, **named: Any) -> Any:
        dense = given and not named.get("is_fp8_kvcache")
        return schedule(*given) if dense else their_schedule(*given, **named)

    def flash_mla_with_kvcache(**named: Any) -> Any:
        nonlocal told
        if named.get("indices") is not None or named["q"].element_size() != 2:
            return their_call(**named)
        if named.get("is_fp8_kvcache"):
            return their_call(**named)
        if not told:
            told = True
            _log.warning("mla_var3 decodes: first call, q %s", tuple(named["q"].shape))
        return flashmla.flash_mla_with_kvcache(
            **{**named, "block_table": table(named["block_table"])}
        )

    ours = {
        "get_mla_metadata": (their_schedule, get_mla_metadata),
        "flash_mla_with_kvcache": (their_call, flash_mla_with_kvcache),
    }
    root = module.__name__.partition(".")[0] + "."
    for name, loaded in list(sys.modules.items()):
        for function, (theirs, mine) in ours.items():
            if name.startswith(root) and vars(loaded).get(function) is theirs:
                setattr(loaded, function, mine)
    _log.warning("mla_var3 takes the place of FlashMLA's dense decode in %s", module.__name__)


def _as_tensors(lengths: torch.Tensor, rows: int, *_: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """SGLang keeps schedules as tensors, which it copies into those of a captured step."""
    return operators.even_schedule(lengths, rows), lengths.new_zeros(len(lengths) + 1)


def _whole_rows(table: torch.Tensor) -> torch.Tensor:
    """SGLang captures a table that is cut to the lengths of that step; its rows go on behind."""
    return table.as_strided((len(table), table.stride(0)), table.stride())


def _enlarge(_result: Any, backend: Any, *_: Any, **__: Any) -> None:
    """Room for our schedule, after SGLang made room for one row per SM."""
    room = backend.cuda_graph_mla_metadata
    backend.cuda_graph_mla_metadata = room.new_empty(PER_SM * len(room), kinds.COLUMNS)
