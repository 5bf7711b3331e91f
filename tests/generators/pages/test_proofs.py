"""What a version's page says of where it ran, what it compiles to, and what has no record."""

from __future__ import annotations

import re

import pytest

from generators.pages import kernels, proofs, tried
from generators.write.devlogs import Story
from mla_var3.evidence import address
from mla_var3.runtime import registry
from tests.factories import correctness, duration, passed, record, stage, static_facts
from tests.generators.runs import on, timed


def _run(made):
    return kernels.Run(address(made), made, False)


def _compiled(version: str, arch: str = "sm_90", **facts):
    name = registry.find("flash_mla", version).name
    made = passed(stages=[stage(name, static=static_facts(arch, kernel=name, **facts))])
    return _run(record(version=version, outcome=made, target=f"static/{arch}"))


def _link(target: str) -> str:
    return target


def test_registers_spills_and_shared_memory_stand_in_the_card(site):
    made = on(site, _compiled("v1", registers=168, shared_bytes=99_000))
    said = proofs.compiled(made, registry.find("flash_mla", "v1"), made.link("a.md"))
    assert re.search(
        r"^sm_90 at b=64 bf16: \[168 registers, .*, 99,000 bytes of shared memory\]\(\S+\)", said
    )


def test_a_version_without_a_compile_says_the_command_and_the_archs_of_its_design(site):
    made = on(site, _compiled("v1", "sm_100"))
    said = proofs.compiled(made, registry.find("flash_mla", "v2"), made.link("a.md"))
    assert said == (
        "No static record; run `nox -s profile -- flash_mla v2 --prof_type=static --arch=sm_100`."
    )


def test_right_says_where(site):
    checked = passed(total=duration(10.0), correctness=correctness())
    on_gpu = timed("v1", 10.0, outcome=checked)
    version = registry.find("flash_mla", "v1")
    made = on(site, on_gpu, _run(record(version="v1", outcome=checked, target="static/sm_90")))
    said = proofs.right(made, version, made.link("a.md"))
    assert "Records: 1 on NVIDIA H200 SXM, 1 in the interpreter. [What was checked" in said


@pytest.mark.parametrize(("design", "said"), [("flash_mla_fp8", True), ("flash_mla", False)])
def test_an_error_over_a_cache_in_fp8_is_told_apart_from_that_of_the_format(site, design, said):
    version = registry.find(design, "v0")
    checked = passed(total=duration(10.0), correctness=correctness())
    made = on(site, timed("v0", 10.0, design=design, outcome=checked))
    right = proofs.right(made, version, made.link("a.md"))
    assert ("not in it: [see fp8](glossary/fp8.md#what-each-format-costs)" in right) == said, right
    assert ("largest relative error of the kernel" in right) == said


def test_a_design_that_no_gpu_ran_says_so_first_and_names_its_seeded_bugs(site):
    link = site.link("a.md")
    pair = next(v for v in site.versions if v.key == "blackwell_mla v1")
    said = proofs.never_ran(site, pair, link)
    assert said.startswith("**Never ran on the chip.**")
    assert "emulator.md#limits" in said
    assert re.search(r"Of \d\d mistakes planted in this version the emulator reports \d\d: ", said)
    assert proofs.never_ran(site, registry.find("flash_mla", "v2"), link) == ""


def test_trials_without_a_record_are_told_apart_from_no_time_at_all(site):
    nothing, version = on(site), registry.find("flash_mla", "v1")
    quoting = Story("It.", {"Insights": "- Faster: 177.1 us after 208.3."})
    silent = Story("It.", {"Insights": "- Right at 40 of 40 random problems."})
    said = [proofs.unmeasured(nothing, version, one, _link) for one in (quoting, silent, None)]
    assert said[0] == "No record of a time; trials without a record are quoted below."
    assert set(said[1:]) == {"No record of a time yet."}


def test_what_failed_in_a_design_is_collected(site):
    versions = site.designs()["flash_mla@cute-dsl"]
    said = tried.section(site, versions, site.link(kernels.design_page(versions[0])))
    lines = [line for line in said.splitlines() if line.startswith("- ")]
    named = {line.split("]")[0].removeprefix("- [") for line in lines}
    devlog = site.catalogue.devlogs["flash_mla@cute-dsl"]
    negative = {entry.version for entry in devlog.entries if entry.negative}
    assert negative
    assert negative <= named
    lost = [line for line in lines if re.search(r"\) than v\d+ at ", line)]
    assert {"v3", "v13"} <= {line.split("]")[0].removeprefix("- [") for line in lost}
    for line in lost:  # The figure leads to its record.
        assert re.search(r"slower\]\(\S+#\S+-event\S*\) than v", line)
    assert all(line.count("](") == 1 for line in lines if line not in lost)
    few = [line for line in lines if "**few rows**" in line]
    assert any("With 16 heads it loses" in line for line in few)
    marked = re.compile(r"- \[v\d+\]\([^)]+\)(, negative)?: \*\*few rows\*\*: ")
    assert all(marked.match(line) for line in few)
    assert said.count("**few rows** marks what was lost") == 1
    more = said.partition("More of them: ")[2].splitlines()[0]
    assert re.findall(r"\]\(\S*?(\w+)/index\.md#tried-and-failed\)", more) == ["thin_mla"]
    unheard = [version for version in versions if version.version == "v0"]
    assert tried.section(site, unheard, site.link("a.md")) == ""
