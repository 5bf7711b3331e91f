"""Memory: sound entries only, two writers lose nothing, a killed one leaves a whole file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from mla_var3.campaign import memory
from mla_var3.campaign.memory import Memory, entry_of
from mla_var3.errors import HyperMlaError, InputError, UnknownNameError, UsageError

V0 = {
    "version": "v0", "subject": "versions/x_v0.py", "hypothesis": "the start", "change": "none",
    "correctness": {"status": "passed", "error": 1e-4, "tolerance": 1e-3}, "verdict": "baseline",
    "origin": "start",
}  # fmt: skip
TIMES = {
    "median_us": 50.0, "parent_us": 100.0, "run": "a1", "parent_run": "a1",
    "device": "nvidia-h200-sxm", "protocol": "events",
}  # fmt: skip
V1 = {
    **V0, "origin": "campaign", "version": "v1", "parent": "v0", "evidence": ["results/x"],
    "verdict": "not timed", "pattern": "o1-one",
}  # fmt: skip


@pytest.fixture
def found(tmp_path):
    made = Memory(tmp_path)
    made.create(V0)
    return made


def test_an_entry_is_read_as_it_was_written(found):
    entry = found.create({**V1, "verdict": "faster", "performance": TIMES})
    assert found.read("v1") == entry
    assert json.loads(found.path("v1").read_text())["schema_version"] == 1
    assert memory.json_schema()["properties"].keys() == entry.model_dump().keys()
    assert found.summary()[1] == "v1: faster, 50.00 us [o1-one]: none"


#: Changes of a sound entry, and the field that the sentence names.
FAULTS = [
    ({"version": "1"}, "version"),
    ({"version": "v01"}, "version"),
    ({"version": None}, "version"),
    ({"version": "v0"}, "v0 has no parent"),
    ({"parent": None}, "every other version has one"),
    ({"parent": "v1"}, "does not come before"),
    ({"parent": "v2"}, "does not come before"),
    ({"parent": "zero"}, "parent"),
    ({"evidence": []}, "evidence"),
    ({"evidence": [""]}, "evidence"),
    ({"evidence": "results/x"}, "evidence"),
    ({"evidence": ["../../x.json"]}, "leads out of the workspace"),
    ({"evidence": ["/etc/passwd"]}, "leads out of the workspace"),
    ({"subject": ""}, "subject"),
    ({"hypothesis": ""}, "hypothesis"),
    ({"hypothesis": 3}, "hypothesis"),
    ({"change": None}, "change"),
    ({"pattern": "O1 One"}, "pattern"),
    ({"verdict": "great"}, "verdict"),
    ({"verdict": "baseline"}, "baseline is the start's"),
    ({"verdict": "faster"}, "needs times of both"),
    ({"verdict": "wrong"}, "do not agree"),
    ({"correctness": {"status": "failed"}}, "do not agree"),
    ({"correctness": {"status": "maybe"}}, "correctness.status"),
    ({"correctness": {"status": "passed", "error": -1}}, "correctness.error"),
    ({"correctness": None}, "correctness"),
    ({"verdict": "slower", "performance": TIMES}, "the times say faster"),
    ({"verdict": "as fast", "performance": TIMES}, "the times say faster"),
    ({"verdict": "faster", "performance": {**TIMES, "median_us": 120.0}}, "the times say slower"),
    ({"verdict": "faster", "performance": {**TIMES, "median_us": 99.0}}, "the times say as fast"),
    ({"verdict": "faster", "performance": {**TIMES, "parent_run": "b2"}}, "is of run b2"),
    ({"verdict": "faster", "performance": {**TIMES, "parent_run": None}}, "come together"),
    ({"verdict": "faster", "performance": {**TIMES, "parent_us": None}}, "come together"),
    ({"verdict": "faster", "performance": {**TIMES, "median_us": 0}}, "performance.median_us"),
    ({"verdict": "faster", "performance": {**TIMES, "run": "A-1"}}, "performance.run"),
    ({"verdict": "faster", "performance": {**TIMES, "gpu": 1}}, "performance.gpu"),
    ({"verdict": "faster", "performance": {**TIMES, "device": "h999"}}, "unknown device 'h999'"),
    ({"verdict": "faster", "performance": 50.0}, "performance"),
    ({"verdict": "wrong", "correctness": {"status": "failed"}, "performance": TIMES},
     "a wrong kernel has no time"),
    ({"diff": {"added": -1, "removed": 0}}, "diff.added"),
    ({"diff": {"added": 1}}, "diff.removed"),
    ({"pitfalls": [{"pitfall": "x"}]}, "pitfalls.0.fix"),
    ({"masked": "perhaps"}, "masked"),
    ({"facts": [""]}, "facts"),
    ({"schema_version": 2}, "schema_version"),
    ({"schema_version": "1"}, "schema_version"),
    ({"mood": "good"}, "mood"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "field"), FAULTS)
def test_a_fault_is_one_sentence_with_file_and_field(found, change, field):
    before = sorted(found.folder.iterdir())
    with pytest.raises(HyperMlaError) as raised:
        found.create({**V1, **change})
    said = str(raised.value)
    assert said.startswith("memory/")
    assert field in said
    assert "\n" not in said
    assert sorted(found.folder.iterdir()) == before


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "memory/v1.json cannot be read: not JSON"),
        ("{", "memory/v1.json cannot be read: not JSON"),
        ("[]", "memory/v1.json: entry"),
        ("[" * 100_000, "nested too deeply"),
        (json.dumps({**V1, "version": "v2"}), "memory/v1.json: version: it is of v2"),
        (json.dumps({**V1, "parent": "x"}), "memory/v1.json: parent"),
        (
            json.dumps(V1)[:-1] + ', "parent": "v1"}',
            "memory/v1.json cannot be read: not JSON: parent is stated 2 times",
        ),
    ],
)
def test_a_file_that_is_not_sound_is_named(found, text, said):
    found.path("v1").write_text(text)
    with pytest.raises(InputError) as raised:
        found.entries()
    assert said in str(raised.value)


def test_an_entry_whose_parent_is_gone_is_named(found):
    found.create(V1)
    found.path("v0").unlink()
    with pytest.raises(InputError, match=r"memory/v1\.json: parent: there is no v0\.json"):
        found.entries()


def test_masked_entries_are_invisible_to_planning(found):
    found.create({**V1, "verdict": "slower", "performance": {**TIMES, "median_us": 200.0}})
    assert list(memory.tried(found.entries())) == ["o1-one"]
    found.mask("v1")
    assert memory.tried(found.entries()) == {}
    assert [e.version for e in found.entries()] == ["v0"]
    assert "v1 (masked)" in found.summary()[1]
    with pytest.raises(UsageError, match="v1 is masked already"):
        found.mask("v1")
    found.mask("v1", masked=False)
    with pytest.raises(UsageError, match="v1 is not masked"):
        found.mask("v1", masked=False)
    assert [e.version for e in found.entries()] == ["v0", "v1"]
    with pytest.raises(UsageError, match="baseline"):
        found.mask("v0")


def test_a_restart_masks_what_came_after(found):
    found.create(V1)
    found.create({**V1, "version": "v2", "parent": "v1"})
    assert [e.version for e in found.restart("v1")] == ["v2"]
    with pytest.raises(UsageError, match="v2 is masked"):
        found.restart("v2")
    with pytest.raises(UnknownNameError, match="known: v0, v1, v2"):
        found.restart("v7")


def test_names_and_parents_have_to_exist(found):
    for version in ("v00", "../v1", "x"):
        with pytest.raises(UsageError, match="is not a version"):
            found.read(version)
    with pytest.raises(InputError, match="there is no v5"):
        found.create({**V1, "version": "v7", "parent": "v5"})
    with pytest.raises(UsageError, match="exists"):
        found.create(V0)
    with pytest.raises(InputError, match="cannot be changed"):
        found.update("v0", {"version": "v3"})


def test_two_writers_lose_nothing(found):
    """Each adds facts of its own to one entry, and entries of its own."""

    def write(name: str, first: int) -> None:
        mine = Memory(found.root)
        for i in range(first, first + 10):
            mine.create({**V1, "version": f"v{i}", "change": name})
            mine.update("v0", {"facts" if name == "a" else "hypothesis": [f"{i}"]
                        if name == "a" else f"{i}"})  # fmt: skip

    threads = [threading.Thread(target=write, args=each) for each in (("a", 1), ("b", 11))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    entries = found.entries()
    assert [e.version for e in entries] == [f"v{i}" for i in range(21)]
    assert (entries[0].facts, entries[0].hypothesis) == (("10",), "20")


KILLED = """
import sys
from pathlib import Path
from mla_var3.campaign.memory import Memory
found, n = Memory(Path(sys.argv[1])), 0
while True:
    n += 1
    found.update("v0", {"hypothesis": str(n) * 2000})
    print(n, flush=True)
"""


def test_a_killed_writer_leaves_a_whole_file(found):
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(found.root)], stdout=subprocess.PIPE, text=True
    )
    child.stdout.readline()
    for _ in range(10):
        time.sleep(0.01)
        os.kill(child.pid, signal.SIGSTOP)
        assert set(found.read("v0").hypothesis) <= set("0123456789")
        os.kill(child.pid, signal.SIGCONT)
    child.kill()
    child.wait()
    child.stdout.close()
    assert found.read("v0").hypothesis
    assert found.update("v0", {"hypothesis": "after"}).hypothesis == "after"


def test_entries_are_the_same_by_schema_and_by_hand():
    assert entry_of(V0) == entry_of(json.loads(entry_of(V0).text()))
