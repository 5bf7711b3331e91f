from mla_var3.languages.cutile.facts import StaticFacts, diff, line_table

from mla_var3.languages.cutile.remarks import Remark
from mla_var3.static.occupancy import Occupancy


def remark(line, message="m", count=1, file="kernels/k.py"):
    return Remark(
        file=file, line=line, kind="passed", category="memory", message=message, count=count
    )


def facts(**changes):
    values = {
        "kernel": "k",
        "arch": "sm_90",
        "registers": 168,
        "instruction_mix": {"FFMA": 3},
        "remarks": (remark(4), remark(4, "n"), remark(9), remark(4, file="src/x.py")),
        "occupancy": Occupancy(blocks_per_sm=1, warps=12, fraction=0.1875, limiter="registers"),
    }
    return StaticFacts(**(values | changes))


def test_json_round_trip():
    assert StaticFacts.model_validate_json(facts().model_dump_json()) == facts()
    assert "error" not in facts().model_dump()


def test_failed_facts_serialise_no_figures():
    failed = StaticFacts(kernel="k", arch="sm_90", error="no")
    assert failed.model_dump() == {
        "kernel": "k", "arch": "sm_90", "hints": {}, "toolchain": {}, "error": "no",
    }  # fmt: skip
    assert StaticFacts.model_validate(failed.model_dump()) == failed
    assert not failed.ok


def test_properties():
    assert facts().on_fast_path
    assert not facts(mma_note="slow").on_fast_path
    assert not facts().spills
    assert facts(spill_stores=1).spills


def test_line_table_by_file():
    table = line_table(facts(), "kernels/k.py")
    assert [(place, [r.message for r in rs]) for place, rs in table.items()] == [
        (("kernels/k.py", 4), ["m", "n"]),
        (("kernels/k.py", 9), ["m"]),
    ]
    assert ("src/x.py", 4) in line_table(facts())


def test_diff_of_equal_facts_is_empty_and_ignores_moved_lines():
    moved = tuple(r.model_copy(update={"line": r.line + 5}) for r in facts().remarks)
    assert diff(facts(), facts(remarks=moved)) == []


def test_diff_names_nested_facts_and_states_the_change():
    after = facts(registers=255, instruction_mix={"HMMA": 2}, occupancy=None, mma_note="slow")
    found = {change.name: change for change in diff(facts(), after)}
    assert found["registers"].delta == 87
    assert (found["instruction_mix.FFMA"].before, found["instruction_mix.FFMA"].after) == (3, None)
    assert (found["instruction_mix.HMMA"].before, found["instruction_mix.HMMA"].after) == (None, 2)
    assert found["mma_note"].delta is None
    assert found["occupancy.limiter"].after is None
