"""Converts a record file of an older schema to today's record, whenever one is read.

Schemas 1 and 2 kept a file per record. Schema 2 also stated the FLOPs and bytes of a cost model,
which follow from the problem. Schema 1 kept further what followed from it (predictions, the share
of a ceiling, occupancy), and named its sources by one hash over all of them.
"""

from __future__ import annotations

import copy
import hashlib
import json
from typing import Any

from mla_var3.evidence.model import Record

#: The schemas that are read here.
OLDER = (1, 2)
#: Folder of each language that schema 1 knew.
_PACKAGES = {"cutile-dsl": "cutile", "cute-dsl": "cute_python"}
#: What schema 1 worked out and stored.
_DERIVED = ("predictions", "roofline_fraction", "peers")
#: What schema 2 took from a cost model.
_COSTS = ("flops", "bytes")


def record_of(data: Any) -> Record:
    """The record that a file of an older schema holds.

    Raises:
        ValidationError: The file is no such record.
    """
    data = observed(data)
    if isinstance(data, dict) and data.get("run") is None:
        # Nothing tells what it was measured with: it stands in a run of its own.
        data["run"] = hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:12]
    return Record.model_validate_json(json.dumps(data), strict=True)


def observed(data: Any) -> Any:
    """What a file of an older schema states of its run, in the fields of today's record."""
    if not isinstance(data, dict):
        return data
    data = copy.deepcopy(data)
    if data.pop("schema_version", None) == 1:
        data = _from_1(data)
    data.pop("content_sha256", None)
    for part in _parts(data.get("outcome")):
        for name in _COSTS:
            part.pop(name, None)
    return data


def _parts(outcome: Any) -> list[dict[str, Any]]:
    """An outcome and its stages."""
    stages = outcome.get("stages") if isinstance(outcome, dict) else None
    return [
        p for p in (outcome, *(stages if isinstance(stages, list) else ())) if isinstance(p, dict)
    ]


def _from_1(data: dict[str, Any]) -> dict[str, Any]:
    kernel, outcome = data.get("kernel"), data.get("outcome")
    if not isinstance(kernel, dict) or not isinstance(outcome, dict):
        return data  # The model names what is wrong.
    kernel.pop("source_sha256", None)
    kernel["package"] = _PACKAGES.get(str(kernel.get("language")), "unknown")
    kernel.setdefault("sources", {})
    if isinstance(device := data.get("device"), dict):
        device.pop("clocks_locked", None)
    if isinstance(git := data.get("git"), dict) and git.get("commit") == "unknown":
        data["git"] = None
    for part in _parts(outcome):
        _drop_derived(part)
    return data


def _drop_derived(part: dict[str, Any]) -> None:
    for name in _DERIVED:
        part.pop(name, None)
    if isinstance(facts := part.get("static"), dict):
        for name in ("occupancy", "mma_note"):
            facts.pop(name, None)
        facts["language"] = "cutile-dsl"
