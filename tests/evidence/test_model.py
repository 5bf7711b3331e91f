"""What a record may say: the status decides the fields, and nothing else is taken."""

from __future__ import annotations

import copy
import datetime
import json
import math
import subprocess
import sys

import pytest
from pydantic import ValidationError

from mla_var3 import evidence

from .making import (
    content,
    correctness,
    duration,
    facts,
    passed,
    record,
    stage,
    timed,
    timed_record,
)


class TestKey:
    @pytest.mark.parametrize(
        ("made", "place"),
        [
            (record(), "static/sm_90/cutile/mla/flash_mla/v0/b64-bf16/static"),
            (timed_record(), "nvidia-h200-sxm/cutile/mla/flash_mla/v0/b64-bf16/event"),
            (
                record(passed(), target="cpu", mode="disabled", kernel={"version": "v1"}),
                "cpu/cutile/mla/flash_mla/v1/b64-bf16/disabled",
            ),
        ],
    )
    def test_it_names_target_language_version_problem_and_mode(self, made, place):
        assert made.key == place
        assert evidence.address(made) == f"results/{place}"

    @pytest.mark.parametrize(
        "target", ["../x", "static/../..", "Static/sm_90", "static/sm_", "", "..", "/a", "static/x"]
    )
    def test_a_target_cannot_leave_the_folder(self, target):
        with pytest.raises(ValidationError, match="target"):
            record(target=target)

    @pytest.mark.parametrize("slug", ["../x", "a/b", "", "a b", "..", ".", ".hidden", "-", "a\n"])
    def test_nor_can_a_slug(self, slug):
        with pytest.raises(ValidationError, match="slug"):
            record(slug=slug)

    @pytest.mark.parametrize("field", ["package", "layer", "design", "version", "language"])
    @pytest.mark.parametrize("value", ["..", "a/b", "", "/x", "v0/..", "V01"])
    def test_nor_can_an_identity(self, field, value):
        with pytest.raises(ValidationError, match=field):
            record(kernel={field: value})

    @pytest.mark.parametrize("blob", ["abc", "g" * 40, "", "a" * 64])
    def test_a_source_is_named_by_its_blob_id(self, blob):
        with pytest.raises(ValidationError, match="sources"):
            record(kernel={"sources": {"kernels/x.py": blob}})


def test_the_arch_is_the_devices_or_the_targets():
    assert record(target="static/sm_100a").arch == "sm_100a"
    assert timed_record().arch == "sm_90"
    assert record(target="cpu").arch is None


class TestStatusDecidesTheFields:
    @pytest.mark.parametrize("field", ["total", "stages", "energy", "protocol"])
    @pytest.mark.parametrize("kind", [evidence.Failed, evidence.Skipped])
    def test_a_run_that_did_not_end_has_no_numbers(self, kind, field):
        said = {"error": "no"} if kind is evidence.Failed else {"reason": "no"}
        with pytest.raises(ValidationError, match=field):
            kind(**said, **{field: getattr(timed(), field)})

    def test_a_success_has_no_error_and_a_stage(self):
        with pytest.raises(ValidationError, match="error"):
            passed(error="no")
        with pytest.raises(ValidationError, match="stages"):
            passed(stages=[])

    @pytest.mark.parametrize("kind", [evidence.Failed, evidence.Skipped])
    def test_a_reason_is_said(self, kind):
        name = "error" if kind is evidence.Failed else "reason"
        with pytest.raises(ValidationError, match=name):
            kind(**{name: ""})

    def test_times_come_with_their_protocol(self):
        together = "times and the protocol they were taken under come together"
        with pytest.raises(ValidationError, match=together):
            passed(total=duration())
        with pytest.raises(ValidationError, match=together):
            passed(stages=[stage(duration=duration())])
        with pytest.raises(ValidationError, match=together):
            passed(protocol=timed().protocol)

    def test_unknown_fields_are_refused_everywhere(self):
        text = content(timed_record(outcome=timed(stages=[stage(static=facts())])))
        places = (
            [], ["device"], ["git"], ["facts", 0], ["protocols", 0], ["entries", 0],
            *(["entries", 0, "outcome", *more] for more in (
                [], ["stages", 0], ["total"], ["correctness"], ["correctness", "cases", 0],
            )),
        )  # fmt: skip
        for place in places:
            changed = copy.deepcopy(text)
            inner = changed
            for step in place:
                inner = inner[step]
            inner["surprise"] = 1
            with pytest.raises(ValidationError, match="surprise"):
                evidence.Run.model_validate_json(json.dumps(changed))

    @pytest.mark.parametrize("bad", [math.nan, math.inf])
    def test_numbers_are_finite(self, bad):
        with pytest.raises(ValidationError, match="finite"):
            duration(bad)
        with pytest.raises(ValidationError, match="finite"):
            stage(counters={"x": bad})
        with pytest.raises(ValidationError):
            record(problem={"b": bad})

    @pytest.mark.parametrize("bad", [{"median": 0.0}, {"median": -1.0}, {"samples": 0}])
    def test_times_are_positive(self, bad):
        with pytest.raises(ValidationError):
            duration(**bad)

    @pytest.mark.parametrize(
        "bad", [{"min_us": 10.1}, {"max_us": 9.9}, {"min_us": 11.0, "max_us": 9.0}]
    )
    def test_a_median_lies_between_its_ends(self, bad):
        with pytest.raises(ValidationError, match="does not hold"):
            duration(10.0, **bad)

    @pytest.mark.parametrize("bad", [-1, 10**31, 10**4000])
    def test_counts_are_in_range(self, bad):
        with pytest.raises(ValidationError, match="mma_flops"):
            evidence.CheckedCase(problem={}, mma_flops=bad)
        with pytest.raises(ValidationError, match="bytes_loaded"):
            evidence.CheckedCase(problem={}, bytes_loaded=bad)

    def test_a_time_has_its_zone(self):
        with pytest.raises(ValidationError, match="time"):
            record(time=datetime.datetime(2026, 11, 21))

    def test_records_cannot_be_changed(self):
        with pytest.raises(ValidationError, match="frozen"):
            record().slug = "other"


def test_the_largest_error_of_the_cases():
    def found(*errors):
        made = [evidence.CheckedCase(problem={}, max_relative_error=e) for e in errors]
        return correctness(cases=made).max_relative_error

    assert found(1e-3, 3e-3, 2e-3) == 3e-3
    assert found(1e-3, None) is None
    assert found(None) is None
    with pytest.raises(ValidationError):
        found()


def test_equal_facts_are_kept_once():
    one, other = stage(static=facts()), stage(static=facts())
    assert one.static is other.static
    assert stage(static=facts(registers=3)).static is not one.static


def leaves(value, place=()):
    """Every scalar of a JSON value with its place."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from leaves(inner, (*place, name))
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from leaves(inner, (*place, i))
    else:
        yield place, value


#: Fields whose values are fixed words: an edit of them is refused as it is read.
FIXED = {"schema_version", "status", "mode", "language", "time", "content_sha256"}


def edited(value):
    """Another value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    return (value or "") + "0" if not str(value).startswith("c" * 40) else "d" * 40


def test_the_hash_covers_everything():
    made = timed_record(
        outcome=timed(
            stages=[stage(static=facts(), duration=duration(), counters={"x": 1.0})],
            artefacts=["out/a"],
        )
    )
    text = content(made)
    tried = 0
    for place, value in leaves(text):
        if place[-1] in FIXED or value is None:
            continue
        changed = copy.deepcopy(text)
        inner = changed
        for step in place[:-1]:
            inner = inner[step]
        inner[place[-1]] = "e" * 40 if place[0] == "versions" else edited(value)
        try:
            read = evidence.parse(json.dumps(changed).encode(), "x")
        except evidence.store.RecordError:
            continue  # Refused, so that it cannot pass for what was written.
        assert read.digest() != read.content_sha256, place
        tried += 1
    assert tried > 30
    later = made.model_copy(update={"time": made.time + datetime.timedelta(seconds=1)})
    assert later.digest() != made.digest()


def test_a_field_that_is_left_out_changes_the_hash():
    text = content(record())
    del text["facts"][0]["spill_loads"]
    read = evidence.parse(json.dumps(text).encode(), "x")
    assert read.digest() != read.content_sha256


def resolved(schema, root):
    while "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rsplit("/", 1)[1]]
    return schema


def conforms(value, schema, root, where="record"):
    """The part of JSON Schema that records use, checked without a library for it."""
    schema = resolved(schema, root)
    if "anyOf" in schema:
        failures = []
        for option in schema["anyOf"]:
            try:
                return conforms(value, option, root, where)
            except AssertionError as error:
                failures.append(str(error))
        raise AssertionError(f"{where}: none of {failures}")
    if "discriminator" in schema:
        mapping = schema["discriminator"]["mapping"]
        reference = mapping[value[schema["discriminator"]["propertyName"]]]
        return conforms(value, {"$ref": reference}, root, where)
    if "const" in schema:
        assert value == schema["const"], where
    if "enum" in schema:
        assert value in schema["enum"], where
    kinds = {
        "object": dict, "array": list, "string": str, "integer": int, "number": (int, float),
        "boolean": bool, "null": type(None),
    }  # fmt: skip
    if "type" in schema:
        assert isinstance(value, kinds[schema["type"]]), (
            f"{where}: {value!r} is no {schema['type']}"
        )
    if isinstance(value, dict):
        assert set(schema.get("required", ())) <= set(value), where
        known = schema.get("properties", {})
        for name, inner in value.items():
            extra = schema.get("additionalProperties", True)
            assert name in known or extra is not False, f"{where}: unknown {name}"
            deeper = known.get(name, extra)
            if isinstance(deeper, dict):
                conforms(inner, deeper, root, f"{where}.{name}")
    if isinstance(value, list):
        assert len(value) >= schema.get("minItems", 0), where
        for i, inner in enumerate(value):
            conforms(inner, schema.get("items", {}), root, f"{where}[{i}]")
    return None


class TestJsonSchema:
    def test_records_of_all_kinds_conform(self):
        schema = evidence.json_schema()
        for made in (
            timed_record(outcome=timed(stages=[stage(duration=duration())])),
            record(),
            record(evidence.Failed(error="no", correctness=correctness("failed"))),
            record(evidence.Skipped(reason="no")),
            record(git=None),
        ):
            conforms(content(made), schema, schema)

    @pytest.mark.parametrize(
        "change", [{"design": 1}, {"more": 1}, {"entries": []}, {"entries": [{"version": "v0"}]}]
    )
    def test_others_do_not(self, change):
        schema = evidence.json_schema()
        with pytest.raises(AssertionError):
            conforms({**content(record()), **change}, schema, schema)


IMPORT = """
import sys
import mla_var3.evidence
heavy = {"torch", "pandas", "numpy", "cuda", "hypothesis", "matplotlib"} & set(sys.modules)
print(*sorted(heavy))
"""


def test_reading_records_needs_neither_torch_nor_pandas():
    done = subprocess.run(
        [sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []
