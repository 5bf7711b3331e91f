"""Test cases of FlashMLA's and FlashInfer's, run with kernels of ours in place of theirs.

Their test files run as they are, from a checkout; what they import of their library are the calls
of ``mla_var3.serving``, which read the same pages.
"""

from __future__ import annotations

import dataclasses
import importlib
import runpy
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import torch

from mla_var3.errors import ToolchainError
from mla_var3.serving import flashmla as flashmla_calls
from mla_var3.serving.flashinfer import BatchMLAPagedAttentionWrapper
from mla_var3.serving.kinds import KEYS, ROWS


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


def work(b: int, h: int, s: int, t: int) -> int:
    """Tiles of 64 rows and 64 keys of a problem."""
    return b * -(-h * s // ROWS) * -(-t // KEYS)


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
    """Cases of FlashMLA's tests of decode and of sparse attention, without their timing.

    Args:
        checkout: FlashMLA's.
    """
    shim = module(
        "flash_mla", **{name: getattr(flashmla_calls, name) for name in flashmla_calls.__all__}
    )
    import torch._dynamo  # looks for Triton itself, and would take ours for it

    # Its timing alone uses Triton.
    others = [] if importlib.util.find_spec("triton") else triton_modules()
    with standing_in(checkout / "tests", shim, *others):
        tests = importlib.import_module("test_flash_mla_dense_decoding")
        found: list[Any] = []
        with mock.patch.object(tests, "test_flash_mla", found.append):
            tests.main(torch.bfloat16)
        yield [
            *sparse(checkout),
            *[
                Case(
                    str(dataclasses.replace(case, test_performance=False)),
                    work(case.b * case.h_kv, case.h_q // case.h_kv, case.s_q, case.s_k),
                    partial(
                        tests.test_flash_mla, dataclasses.replace(case, test_performance=False)
                    ),
                )
                for case in found
            ],
        ]


def sparse(checkout: Path) -> Iterator[Case]:
    """Cases of FlashMLA's tests of sparse attention, without those that are there to be timed."""
    decode = importlib.import_module("test_flash_mla_sparse_decoding")
    for case in decode.gen_testcase():
        if case.num_runs == 0:
            k = case.topk + (case.extra_topk or 0)
            tiles = work(case.b * case.s_q, case.h_q, 1, k)
            run = partial(
                lambda given: decode.test_flash_mla(given).is_correct, case.to_test_param()
            )
            yield Case(f"sparse decode {case}", tiles, partial(judged, run))
    test, cases = prefill(checkout / "tests" / "test_flash_mla_sparse_prefill.py")
    for case in cases:
        if case.num_runs == 0:
            tiles = work(case.s_q, case.h_q, 1, case.topk)
            yield Case(f"sparse prefill {case}", tiles, partial(judged, partial(test, case)))


def decode_is_right(tests: Any, case: Any) -> bool:
    """Verdict of their test of sparse decode."""
    return bool(tests.test_flash_mla(case.to_test_param()).is_correct)


def judged(run: Callable[[], bool]) -> None:
    """Raise where a test that returns its verdict says no."""
    assert run(), "values differ from the reference"


class ListedError(Exception):
    """Ends a script that has listed its cases."""


def prefill(script: Path) -> tuple[Callable[[Any], bool], Sequence[Any]]:
    """A script's test and cases, which it lists before it looks at how to time them."""
    lib = importlib.import_module("lib")
    with mock.patch.object(lib, "is_no_cooldown", side_effect=ListedError):
        try:
            runpy.run_path(str(script), run_name="__main__")
        except ListedError as ended:
            at = ended.__traceback__
            while at is not None:
                names = at.tb_frame.f_globals
                if "testcases" in names:
                    return names["run_test"], names["testcases"]
                at = at.tb_next
    raise ToolchainError(f"{script.name} lists no cases where this commit's did")


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
