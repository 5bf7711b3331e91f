"""Errors in the emulator and on a GPU are what the page on trust says of the records."""

from __future__ import annotations

import json
import re
from collections import defaultdict

import pytest

from mla_var3.paths import repo_root

ROOT = repo_root()
TEXT = (ROOT / "docs/emulator-trust.md").read_text(encoding="utf-8")
SECTION = TEXT.partition("Records keep both errors")[2].partition("\n")[0]


def _largest() -> dict[bool, dict[tuple[str, str], float]]:
    """Largest error of each version of the CuTe DSL in bf16, on a GPU and in the emulator."""
    found: dict[bool, dict[tuple[str, str], float]] = {True: {}, False: {}}
    for path in (ROOT / "results").rglob("cute_python/**/*.json"):
        file = json.loads(path.read_text(encoding="utf-8"))
        if "entries" not in file:
            continue
        on_gpu, errors = not file["target"].startswith("static/"), defaultdict(list)
        for entry in file["entries"]:
            correctness = entry["outcome"].get("correctness") or {}
            errors[file["design"], entry["version"]] += [
                case["max_relative_error"]
                for case in correctness.get("cases", ())
                if correctness["status"] == "passed" and case["problem"].get("dtype") == "bf16"
            ]
        for version, many in errors.items():
            found[on_gpu][version] = max(found[on_gpu].get(version, 0.0), *many, 0.0)
    return {side: {v: e for v, e in many.items() if e} for side, many in found.items()}


def test_the_page_says_what_the_records_do() -> None:
    largest = _largest()
    both = sorted(largest[True].keys() & largest[False].keys())
    count, *ends, apart = re.findall(r"\d\.?\d?e-\d|\d+(?= versions)", SECTION)[:6]
    low, high, low_here, high_here = map(float, ends)
    assert len(both) > int(count)
    for side, least, most in ((True, low, high), (False, low_here, high_here)):
        errors = [largest[side][version] for version in both]
        assert (min(errors), max(errors)) == pytest.approx((least, most))
    assert max(abs(largest[True][v] - largest[False][v]) for v in both) <= float(apart) + 1e-9
