"""Records of older schemas, brought to the current one when they are read.

Schema 1 kept, beside what was observed, what followed from it (predictions, the share of a
ceiling, occupancy), and named its sources by one hash over all of them.
"""

from __future__ import annotations

import copy
import json
from typing import Any

#: Folder of each language that schema 1 knew.
_PACKAGES = {"cutile-dsl": "cutile", "cute-dsl": "cute_python"}
#: What schema 1 worked out and stored.
_DERIVED = ("predictions", "roofline_fraction", "peers")


def to_current(data: Any) -> bytes:
    """``data`` as JSON of the current schema; what is not a record of an older one as it is."""
    if isinstance(data, dict) and data.get("schema_version") == 1:
        data = _from_1(copy.deepcopy(data))
    return json.dumps(data).encode()


def _from_1(data: dict[str, Any]) -> dict[str, Any]:
    kernel, outcome = data.get("kernel"), data.get("outcome")
    if not isinstance(kernel, dict) or not isinstance(outcome, dict):
        return data  # The model names what is wrong.
    data["schema_version"] = 2
    kernel.pop("source_sha256", None)
    kernel["package"] = _PACKAGES.get(str(kernel.get("language")), "unknown")
    kernel.setdefault("sources", {})
    if isinstance(device := data.get("device"), dict):
        device.pop("clocks_locked", None)
    if isinstance(git := data.get("git"), dict) and git.get("commit") == "unknown":
        data["git"] = None
    stages = outcome.get("stages")
    for part in (outcome, *(stages if isinstance(stages, list) else ())):
        if isinstance(part, dict):
            _drop_derived(part)
    return data


def _drop_derived(part: dict[str, Any]) -> None:
    for name in _DERIVED:
        part.pop(name, None)
    if isinstance(facts := part.get("static"), dict):
        for name in ("occupancy", "mma_note"):
            facts.pop(name, None)
        facts["language"] = "cutile-dsl"
