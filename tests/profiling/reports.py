"""Stand-ins for NVIDIA's ``ncu_report``, and a reduced report of ``hopper_gemm`` v1.

It keeps some eighty counters, what the rules said, and the instructions that were sampled among
some others.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from mla_var3.profiling.ncu_rep import LAUNCHES, Profiled

FIXTURES = Path(__file__).parent / "fixtures"


def gemm() -> Profiled:
    """Its one launch."""
    (launch,) = LAUNCHES.validate_json((FIXTURES / "hopper_gemm_v1.json").read_bytes())
    return launch


class Metric:
    """NVIDIA's metric, played: a value, and perhaps one for each of several keys."""

    def __init__(self, name: str, value: Any, unit: str = "", each: dict | None = None) -> None:
        self._name, self._value, self._unit, self._each = name, value, unit, each or {}

    def name(self) -> str:
        return self._name

    def value(self, index: int | None = None) -> Any:
        return self._value if index is None else list(self._each.values())[index]

    def unit(self) -> str:
        return self._unit

    def num_instances(self) -> int:
        return len(self._each)

    def has_correlation_ids(self) -> bool:
        return bool(self._each)

    def correlation_ids(self) -> Any:
        return SimpleNamespace(value=lambda index: list(self._each)[index])


def action(metrics: list[Metric], name: str = "k", **more: Any) -> Any:
    """NVIDIA's action, played: one launch."""
    by_name = {metric.name(): metric for metric in metrics}
    known = {
        "name": lambda base: name,
        "metric_names": lambda: tuple(by_name),
        "metric_by_name": by_name.get,
        "rule_results_as_dicts": lambda: [],
        "source_files": dict,
        "source_info": lambda address: None,
        "sass_by_pc": lambda address: f"OP  R0, {address:#x}",
        "ptx_by_pc": lambda address: "add  %r1;",
    }
    return SimpleNamespace(**{**known, **more})


def module(*actions: Any, error: Exception | None = None) -> ModuleType:
    """NVIDIA's module, played: every report holds the actions, in one range."""

    def load_report(path: str) -> Any:
        if error is not None:
            raise error
        one = SimpleNamespace(num_actions=lambda: len(actions), action_by_idx=actions.__getitem__)
        return SimpleNamespace(num_ranges=lambda: 1, range_by_idx=lambda index: one)

    kinds = ((2, "OPTIMIZATION"), (3, "WARNING"), (4, "ERROR"))
    enum = {name: _Kind(value, name) for value, name in kinds}
    made = ModuleType("ncu_report")
    vars(made).update(
        load_report=load_report,
        IAction=SimpleNamespace(NameBase_DEMANGLED=1, NameBase_MANGLED=2),
        MsgType=SimpleNamespace(**enum),
        SpeedupType=SimpleNamespace(GLOBAL=2),
    )
    return made


class _Kind(int):
    def __new__(cls, value: int, name: str) -> _Kind:
        made = super().__new__(cls, value)
        made.name = name
        return made
