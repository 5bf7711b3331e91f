from __future__ import annotations

import dataclasses
import io
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from mla_var3 import languages
from mla_var3.app import checking, commands, few_builds, plan_values
from mla_var3.app.verdicts import CheckOutcome, Place
from mla_var3.errors import HyperMlaError, NotExecutableError, PlanError
from mla_var3.forked import Ended
from mla_var3.runtime import cases, registry, unreached
from mla_var3.runtime.check import OutputError
from mla_var3.serving import trials
from mla_var3.workloads import Tolerance
from mla_var3.workloads.mla.problems import FAR, LEVEL, TINY


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch):
    """What earlier checks found has no part here: outcomes are made up."""
    monkeypatch.setattr(Place, "kept", lambda _: None)
    monkeypatch.setattr(Place, "keep", lambda *_: None)


@pytest.fixture(autouse=True)
def few(request, monkeypatch):
    """No problems but those of the workload, unless a test is about the others."""
    if "made" not in request.node.name:
        monkeypatch.setattr(checking, "MADE", 0)


def test_problems_are_made_where_a_language_runs_them_fast():
    version = registry.find("flash_mla", "v1")
    at_edges = 14 * 5 + 8 + 3  # Fourteen sizes under five tilings, short ones again, long ones.
    assert len(checking.cases_of(version)) == 9 + checking.MADE + at_edges
    groups = checking.groups_of(version)
    assert [len(group.cases) for group in groups[:-1]] == [checking.TOGETHER] * (len(groups) - 1)
    assert sum(len(group.cases) for group in groups) == 9 + checking.MADE + at_edges


def test_what_a_version_raises_is_wrong_with_it(monkeypatch):
    version = registry.find("flash_mla@cutile-dsl", "v0")
    case = cases.cases(version.plan_class()())[0]

    def empty_outputs(self, device):
        raise IndexError("list index\nout of range")

    monkeypatch.setattr(version.plan_class(), "empty_outputs", empty_outputs)
    outcome = checking.check_case(version, case)
    assert outcome.explanation.startswith("raised IndexError at kernels/cutile/mla/flash_mla/")
    assert outcome.explanation.endswith(": list index out of range")
    assert "WRONG" in outcome.line()
    answer = checking._choose("flash_mla@cutile-dsl", "v0")
    assert "v0 cannot be planned: it raised IndexError at kernels/" in str(answer)


def test_a_fault_of_ours_is_not_a_versions(monkeypatch):
    version = registry.find("flash_mla@cutile-dsl", "v0")
    monkeypatch.setattr(version.plan_class(), "reference_fn", lambda *_: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        checking.check_case(version, cases.cases(version.plan_class()())[0])


class TestCheck:
    @pytest.fixture
    def threads(self, monkeypatch):
        """All in this process, on outcomes made up here, whatever plans decide."""
        monkeypatch.setattr(plan_values, "gaps", lambda *_: [])
        monkeypatch.setattr(plan_values, "unseen", lambda *_: iter(()))

        def run(work, *, explain, **_):
            for number, task in work.items():
                try:
                    yield number, Ended(task(), None, "")
                except SystemError as error:
                    yield number, Ended(None, str(error), "", crashed=True)
                except Exception as error:  # noqa: BLE001 - As in a process of its own.
                    yield number, Ended(None, explain(error), "")

        monkeypatch.setattr(checking.forked, "run", run)
        wrong: dict[tuple[str, int], str] = {}
        seen: dict[str, int] = {}

        def outcome(version, case):
            index = seen[version.key] = seen.get(version.key, -1) + 1
            text = wrong.get((version.version, index), "")
            if text == "raise":
                raise PlanError("no plan")
            if text == "killed":
                raise SystemError("the process ended by signal 9")
            if text == "fault":
                raise ZeroDivisionError("of its own")
            key = version.key
            if text == "skip":
                return CheckOutcome(key, f"slug-{index}", skipped="needs a GPU")
            error = math.nan if text else 1e-3
            return CheckOutcome(key, f"slug-{index}", error, text)

        monkeypatch.setattr(checking, "check_case", outcome)
        monkeypatch.setattr(
            trials, "run", lambda *_: [OutputError("o", 1e-3, 0.0, Tolerance(0.1, 0.1))]
        )
        return wrong

    def test_all_right_is_0(self, threads, capsys):
        assert commands.main(["check", "flash_mla"]) == 0
        out = capsys.readouterr().out
        assert out.count(" ok\n") == 37
        assert "4 version(s), 37 problems: all right" in out
        assert "[  1/37] flash_mla v0" in out

    def test_one_wrong_is_1_and_says_what(self, threads, capsys):
        threads["v1", 4] = "o: relative error nan [x]"
        assert commands.check("flash_mla", "v1") == 1
        out = capsys.readouterr().out
        assert "error nan WRONG" in out
        assert "o: relative error nan [x]" in out
        assert "1 version(s), 9 problems: 1 wrong" in out

    def test_without_names_everything_is_checked(self, threads, monkeypatch, capsys):
        monkeypatch.setattr(few_builds, "chosen", lambda plan, *_: cases.cases(plan)[:2])
        assert commands.check() == 0
        out = capsys.readouterr().out
        assert f"{len(registry.versions())} version(s)" in out
        assert f", {len(trials.names())} calls of servers: all right" in out

    def test_a_refused_plan_ends_the_run(self, threads):
        threads["v0", 0] = "raise"
        with pytest.raises(PlanError, match="no plan"):
            commands.check("flash_mla", "v0")

    def test_processes_end_where_one_of_them_ends_the_run(self, threads, monkeypatch):
        ended = []
        run = checking.forked.run

        def noted(*args, **options):
            try:
                yield from run(*args, **options)
            finally:
                ended.append(True)

        monkeypatch.setattr(checking.forked, "run", noted)
        threads["v0", 0] = "fault"
        with pytest.raises(RuntimeError) as raised:  # Its trace holds all frames on the way.
            commands.check("flash_mla", "v0")
        assert ended, raised

    def test_a_fault_of_the_check_itself_keeps_its_trace(self, threads):
        threads["v0", 0] = "fault"
        with pytest.raises(RuntimeError, match=r"in outcome\n(.|\n)*ZeroDivisionError: of its own"):
            commands.check("flash_mla", "v0")

    def test_a_killed_process_is_one_sentence(self, threads):
        threads["v0", 0] = "killed"
        with pytest.raises(HyperMlaError, match="a checking process was killed, perhaps for lack"):
            commands.check("flash_mla", "v0")

    @pytest.mark.slow
    @pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks for processes in /proc")
    def test_an_interrupt_ends_all_processes_in_one_sentence(self):
        command = [sys.executable, "-m", "mla_var3.app.commands", "check", "flash_mla", "--anew"]
        done = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
        children = Path(f"/proc/{done.pid}/task/{done.pid}/children")
        while done.poll() is None and len(children.read_text().split()) < 2:
            time.sleep(0.02)
        time.sleep(0.3)  # They import now.
        os.killpg(done.pid, signal.SIGINT)
        _, err = done.communicate()
        assert (done.returncode, err) == (130, "interrupted; nothing half-written is left\n")

    def test_one_problem_is_checked_where_torch_can(self):
        version = registry.find("flash_mla@cutile-dsl", "v1")
        outcome = checking.check_case(version, checking.cases_of(version)[8])
        assert outcome.version == "flash_mla v1"
        assert outcome.slug == "b1-h16-s5-t3-p64-k512-bf16-causal"
        assert outcome.explanation == ""
        assert outcome.error < 4e-3

    @pytest.mark.slow
    def test_in_processes_of_their_own(self, monkeypatch):
        version = registry.find("flash_mla", "v1")
        last = version.plan_class()().check_plans()[-1:]
        monkeypatch.setattr(version.plan_class(), "check_plans", lambda _: last)
        monkeypatch.setattr(plan_values, "unseen", lambda *_: iter(()))
        out = io.StringIO()
        groups = checking.groups_of(version)
        (outcome,) = checking.check_groups(groups, Console(file=out), workers=1)
        assert outcome.explanation == ""
        assert outcome.slug == last[0].slug()

    def test_what_cannot_run_here_is_skipped_and_said(self, threads, capsys):
        threads["v0", 0] = "skip"
        assert commands.main(["check", "flash_mla", "v0"]) == 0
        out = capsys.readouterr().out
        assert "skipped" in out
        assert "not checked: needs a GPU" in out
        assert "1 version(s), 8 problems: all right" in out

    def test_nothing_at_all_is_an_error(self, threads):
        for index in range(9):
            threads["v0", index] = "skip"
        with pytest.raises(NotExecutableError, match="needs a GPU"):
            commands.check("flash_mla", "v0")

    def test_a_language_that_does_not_run_on_a_cpu_is_skipped(self, monkeypatch):
        cutile = type(languages.find("cutile-dsl"))
        monkeypatch.setattr(cutile, "cannot_execute", lambda _: "needs a GPU")
        version = registry.find("flash_mla@cutile-dsl", "v1")
        assert checking.check_case(version, checking.cases_of(version)[0]).skipped == "needs a GPU"

    def test_the_language_taken_is_said(self, threads, monkeypatch, capsys):
        monkeypatch.setattr(registry, "other_languages", lambda _: ["cute-dsl"])
        commands.main(["check", "flash_mla", "v1"])
        assert "flash_mla exists in cutile-dsl, cute-dsl: taking cutile" in capsys.readouterr().out


def test_a_gpu_is_given_what_takes_a_cpu_too_long(monkeypatch):
    version = registry.find("mla_var6_plus@cutile-dsl", "v4")
    on_cpu = checking.cases_of(version)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    found = checking.cases_of(version)
    assert len(found) > len(version.plan_class()().check_plans())
    assert {case.sizes for case in found} == {"default"}
    steps = [max(case.plan.steps() for case in cases) for cases in (on_cpu, found)]
    assert steps[1] > 10 * steps[0]
    compiled = checking.cases_of(registry.find("flash_mla@cute-dsl", "v9"))
    assert {case.build for case in compiled} >= {None, 0, 1}


@pytest.mark.gpu
def test_on_a_gpu_every_problem_is_right():
    version = registry.find("flash_mla@cutile-dsl", "v1")
    outcomes = [checking.check_case(version, case) for case in checking.cases_of(version)]
    assert [one.explanation for one in outcomes if one.explanation] == []


@pytest.mark.slow
def test_few_builds_are_run_at_many_sizes():
    version = registry.find("flash_mla@cute-dsl", "v9")
    found = few_builds.chosen(version.plan_class()(), 2)
    plans = [case.plan for case in found]
    assert len(found) > 6
    assert {plan.causal for plan in plans} == {True, False}
    assert {plan.dtype for plan in plans} == {"bf16", "fp16"}
    told = {(case.build, case.plan.slug(), case.plan.target.sm_count) for case in found}
    assert len(told) == len(found)
    assert [case.build for case in found] == sorted(case.build for case in found)
    assert len(checking.groups_of(version)) in (2, 3, 4, 5)  # one is of a problem it names
    switches = [case.plan.tiling("attention") for case in found]
    assert {(one.lazy, one.splits) for one in switches} >= {(0.0, 1), (15.0, 2)}
    builds = {case.build for case in found}
    assert [case.build for case in found if case.plan.rise == FAR] == sorted(builds)
    assert any(plan.h > 1 and plan.s % 2 and plan.h * plan.s > 64 for plan in plans if plan.causal)
    assert found == few_builds.chosen(version.plan_class()(), 2)


def test_a_mask_meets_keys_in_parts_and_a_merge():
    version = registry.find("flash_mla@cute-dsl", "v9")
    found = few_builds.chosen(version.plan_class()(), 2)  # without the problems that it names
    met = [
        case
        for case in found
        if case.plan.causal
        for stages in [[n for n, _ in case.plan.plan(*case.plan.prepare_inputs("meta")).stages()]]
        if "merge" in stages and (case.plan.parts or 1) > 1
    ]
    assert any(case.plan.t % 64 and case.plan.s > 1 for case in met)
    assert any(case.plan.t > 1000 for case in met)


@pytest.mark.slow
def test_problems_of_a_build_are_made_for_devices_of_several_sizes():
    version = registry.find("sparse_mla@cute-dsl", "v1")
    found = few_builds.chosen(version.plan_class()(), 1)
    assert {case.plan.target.sm_count for case in found} >= {2, 5, 132}


@pytest.mark.parametrize(("version", "flags"), [("v13", ["spare"]), ("v18", ["causal", "absent"])])
def test_a_build_runs_both_sides_of_each_flag_that_it_is_given_at_launch(version, flags):
    builds = {}
    for case in checking.cases_of(registry.find("flash_mla@cute-dsl", version)):
        builds.setdefault(case.build, []).append(case.plan)
    for those in builds.values():
        for name in flags:
            assert {getattr(plan, name) for plan in those} == {False, True}


def test_problems_at_edges_are_run_by_each_build_that_can():
    found = few_builds.chosen(registry.find("hopper_attention", "v1").plan_class()(), 2)
    ran = [x.build for x in found if (x.plan.b, x.plan.h, x.plan.s, x.plan.t) == (1, 19, 1, 127)]
    assert ran == [0, 1]


def test_problems_at_edges_keep_what_is_extreme_about_them_in_each_build():
    found = few_builds.chosen(registry.find("flash_attention@cute-dsl", "v1").plan_class()(), 3)
    edges = {one.slug().removesuffix("-causal"): one for one in cases_at_edges(found)}
    assert {one.level for one in edges.values()} == {0.0, TINY, LEVEL}
    assert any(one.jumps for one in edges.values())


def cases_at_edges(found):
    """The plans among cases whose sizes are those of an edge."""
    names = ("b", "h", "s", "t")
    sizes = {tuple(getattr(e, n) for n in names) for x in found for e in x.plan.edges()}
    return [x.plan for x in found if tuple(getattr(x.plan, n) for n in names) in sizes]


def test_sizes_are_moved_within_a_build_and_none_that_counts_is_lost():
    plan = registry.find("flash_mla@cute-dsl", "v1").plan_class()()
    found = few_builds.chosen(plan, 2)
    tried = set(plan.tries()["s"])
    known = {one.s for one in [*plan.check_plans(), *plan.edges()]}
    assert {case.plan.s for case in found} - tried - known
    for build in {case.build for case in found}:
        compiled = [few_builds.built(x) for x in found if x.build == build]
        first = compiled[0].builds
        assert all(one.builds <= first for one in compiled)


def test_sizes_that_a_design_names_are_run():
    version = registry.find("flash_mla@cute-dsl", "v15")
    ran = [case.plan for case in checking.cases_of(version)]
    named = unreached.reaching(version)
    assert {one.refused for one in named} == {False, True}
    for one in named:
        wanted = {"b": 1, "h": 1, "s": 1, **one.fields}
        same = [plan for plan in ran if all(getattr(plan, n) == v for n, v in wanted.items())]
        assert bool(same) != one.refused, one


@pytest.mark.parametrize("as_planned", [False, True])
def test_sizes_may_ask_for_the_tilings_that_their_plan_chooses(as_planned):
    plan = registry.find("thin_mla@cute-dsl", "v3").plan_class()()
    named = unreached.Reaching({"b": 1, "h": 2, "s": 3, "t": 65}, as_planned)
    found = [case for case in few_builds.chosen(plan, 2, [named]) if case.plan.t == 65]
    (own,) = [case for case in found if (case.plan.h, case.plan.s) == (2, 3)]
    assert own.plan.tiling("attention").ahead is as_planned
    alike = [case for case in few_builds.chosen(plan, 2, [named]) if case.build == own.build]
    assert len(alike) == 1 if as_planned else own.build == 0


def test_what_is_named_takes_a_build_that_is_there_for_what_plans_decide():
    found = checking.cases_of(registry.find("flash_mla@cute-dsl", "v19"))
    (build,) = {case.build for case in found if case.plan.h in (40, 48, 64)}
    kept: dict[int | None, set[str]] = {}
    for case in found:
        if (values := plan_values.of(case.plan)) is not None:
            kept.setdefault(case.build, set()).add(values["attention", "keep"])
    assert kept.pop(build) == {"True"}
    assert set.union(*kept.values()) == {"False"}


def test_a_problem_as_its_plan_makes_it_takes_a_build_of_another_type():
    plan = registry.find("thin_mla@cute-dsl", "v3").plan_class()()
    named = unreached.Reaching({"b": 1, "h": 2, "s": 3, "t": 65}, as_planned=True)
    alone = few_builds.as_named(plan, named)
    (first,) = [few_builds.built(cases.Case(alone, "default", "forward"))]
    other = dataclasses.replace(alone, dtype="fp16", t=66)
    picked = [[few_builds.built(cases.Case(other, "default", "forward"))]]
    assert not first.builds <= picked[0][0].builds
    few_builds._add_planned(plan, named, picked)
    assert [one.case.plan for one in picked[0]] == [other, dataclasses.replace(alone, dtype="fp16")]


def test_sizes_that_a_design_names_are_run_where_nothing_is_compiled():
    version = registry.find("mla_var6_plus@cutile-dsl", "v4")
    (named,) = unreached.reaching(version)
    wanted = cases.as_checked(few_builds.as_named(version.plan_class()(), named))
    assert wanted.unseen == 1
    assert wanted in [case.plan for case in checking.cases_of(version)]


@pytest.mark.slow
def test_sizes_may_ask_for_few_multiprocessors():
    plan = registry.find("mla_shared_prefix@cute-dsl", "v1").plan_class()()
    sizes = {"b": 2, "h": 3, "s": 130, "t": 130, "shared": 65, "prefix": 65, "prefix_splits": 7}
    named = unreached.Reaching(sizes | {"groups": 1, "causal": False}, sms=5)
    found = few_builds.chosen(plan, 2, [named])
    (own,) = [x for x in found if (x.plan.s, x.plan.t, x.plan.h) == (130, 130, 3)]
    assert own.plan.target.sm_count == 5
    assert own.build == 1  # which is for such a device


def test_a_long_problem_that_a_version_names_is_launched_once():
    found = checking.cases_of(registry.find("flash_mla@cute-dsl", "v19"))
    (longest,) = [case for case in found if case.plan.t == 11008]
    assert longest.runs == 1
    builds = {case.build for case in found}
    alone = {build for build in builds if [x.build for x in found].count(build) == 1}
    assert {case.build for case in found if case.runs == 2} == builds - alone
    wide = [case.runs for case in found if case.plan.target.sm_count == few_builds.WIDE_SMS]
    assert wide == [2, 2]


def test_problems_of_a_build_compile_to_the_same():
    version = registry.find("flash_mla@cute-dsl", "v13")
    spoken = languages.find(version.language)
    builds: dict[int | None, set[str]] = {}
    for case in few_builds.chosen(version.plan_class()(), 2):
        stages = case.plan.plan(*case.plan.prepare_inputs("meta")).stages()
        builds.setdefault(case.build, set()).update(spoken.build(kernel) for _, kernel in stages)
    assert {len(those) for those in builds.values()} == {2}  # attention and merge


@pytest.mark.slow
def test_many_multiprocessors_share_one_sequence_and_two_where_parts_are_merged():
    version = registry.find("flash_mla@cute-dsl", "v14")
    found = few_builds.chosen(version.plan_class()(), 2)
    wide = [case for case in found if case.plan.target.sm_count == few_builds.WIDE_SMS]
    keys = few_builds.WIDE_SMS * 64
    assert [(case.plan.b, case.plan.t) for case in wide] == [(1, keys), (2, keys)]
    assert [case.plan.level for case in wide] == [TINY, LEVEL], "both ends of a type"


def test_rows_of_many_heads_and_queries_are_those_of_one_problem():
    found = few_builds.chosen(registry.find("blackwell_mla", "v2").plan_class()(), 2)
    assert [case.plan.t for case in found if case.plan.h * case.plan.s > 2048] == [20]


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("version", "lags"),
    [("blackwell_mla v0", [8, 0, 15, 8]), ("blackwell_mla v2", [2, 0, 8]),
     ("sparse_mla v2", [8, 0, 15]), ("flash_mla@cute-dsl v13", [8, 0, 15])],
)  # fmt: skip
def test_builds_let_maxima_lag_by_what_none_before_does(version, lags):
    """Not at all, and as far as weights allow; the first build keeps what users get, a fourth too.

    A build of its own for the latter, where there are but two.
    """
    version = registry.find(*version.split())
    builds = {x.build: x.plan for x in reversed(checking.cases_of(version))}
    assert [builds[n].tiling("attention").lazy for n in sorted(builds)] == lags


@pytest.mark.slow
@pytest.mark.parametrize(("version", "rows"), [("v13", [16, 16]), ("v20", [65, 16, 65])])
def test_one_multiprocessor_has_several_long_sequences_in_turn(version, rows):
    """Once for each kernel: pairs of CTAs that share keys take no few rows, others no many.

    And once with a lag that neither of two builds has.
    """
    plan = registry.find("flash_mla@cute-dsl", version).plan_class()()
    alone = [case for case in few_builds.chosen(plan, 2) if case.plan.target.sm_count == 1]
    assert [case.plan.h * case.plan.s for case in alone] == rows
    assert all(case.plan.drawn() == [5 * 64] * 3 for case in alone)


def test_what_was_tried_stands_in_one_line():
    version = registry.find("flash_mla", "v1")
    orders = [case.order for case in checking.cases_of(version)]
    outcomes = [CheckOutcome(version.key, "", order=order) for order in orders]
    groups = checking.groups_of(version)
    assert checking.tried(groups, outcomes) == (
        "9 problems; blocks started forward, reverse, random; tilings default, halved, doubled, "
        "tuned; scores near 830; scores spread 48-fold; scores near -830"
    )
    outcomes = [CheckOutcome(version.key, "", skipped="needs a GPU") for _ in orders[1:]]
    one = CheckOutcome(version.key, "", order="forward")
    assert "1 problem; blocks started forward;" in checking.tried(groups, [one, *outcomes])


def test_calls_are_those_of_the_version_that_servers_call():
    versions = registry.select("flash_mla@cute-dsl")
    called = {v.version: checking._calls_of(v) for v in versions}
    (own,) = [calls for calls in called.values() if calls]
    assert [name for _, _, name in own] == trials.names()
    assert not checking._calls_of(registry.find("flash_mla@cutile-dsl", "v3"))


@pytest.mark.parametrize("wrong", [False, True])
def test_a_call_that_is_wrong_fails_its_version(wrong, monkeypatch, capsys):
    """Calls run in processes of their own; here in this one, and a kernel computes nothing."""
    errors = [OutputError("o", 0.5 if wrong else 0.0, 0.0, Tolerance(0.1, 0.1, "relative"))]
    monkeypatch.setattr(trials, "run", lambda name, device: errors)
    monkeypatch.setattr(checking, "_side_by_side", in_turn)
    console = Console(width=200)
    version = registry.find("flash_mla@cute-dsl", "v25").version
    outcomes = checking._check_calls(
        [("flash_mla@cute-dsl", version, "lists of 584 bytes")], console
    )
    assert [bool(o.explanation) for o in outcomes] == [wrong]
    assert ("WRONG" in capsys.readouterr().out) == wrong


def in_turn(work, modules, workers=None):
    for number, one in work.items():
        yield number, Ended(one(), None, "")


@pytest.mark.parametrize(
    ("design", "version", "stage", "count"),
    [
        ("flash_attention@cutile-dsl", "v2", "attention", "section"),
        ("gemm@cutile-dsl", "v1", "gemm", "group_m"),
        ("flash_attention@cute-dsl", "v1", "attention", "stages"),  # An odd one is refused.
        ("hopper_attention", "v3", "attention", "stages"),  # Of two there is none below.
        ("thin_mla", "v3", "attention", "parts"),
    ],
)
def test_counts_are_also_no_powers_of_two(
    monkeypatch: pytest.MonkeyPatch, design: str, version: str, stage: str, count: str
):
    monkeypatch.setattr(checking, "MADE", 1)  # Edges come with what is made.
    found = {
        getattr(case.plan.tiling(stage), count)
        for case in checking.cases_of(registry.find(design, version))
    }
    assert any(value & (value - 1) for value in found), found


def test_a_ring_of_an_odd_count_begins_anew_more_than_once():
    (case,) = (
        case for case in checking.cases_of(registry.find("hopper_attention", "v3"))
        if case.plan.tiling("attention").stages == 3
    )  # fmt: skip
    tiling = case.plan.tiling("attention")
    assert case.plan.t > 2 * tiling.stages * tiling.keys


@pytest.mark.slow
@pytest.mark.parametrize(("design", "inputs"), [("sparse_mla", 1), ("flash_mla@cute-dsl", 3)])
def test_pages_and_sequences_are_several_where_they_lie_apart(design: str, inputs: int):
    """A page that is alone lies apart from none."""
    (case,) = (case for case in checking.cases_of(registry.select(design)[-1]) if case.beside)
    assert case.runs == 2
    several = [x for x in case.plan.prepare_inputs("meta") if x.ndim > 2 and len(x) > 1]
    assert len(several) >= inputs


@pytest.mark.parametrize(
    ("design", "version"), [("flash_mla@cute-dsl", "v25"), ("blackwell_mla", "v2")]
)
def test_very_low_scores_are_merged_from_many_parts(design: str, version: str):
    low = [
        case.plan
        for case in checking.cases_of(registry.find(design, version))
        if case.plan.shift == -FAR and case.plan.h * case.plan.s <= 32
    ]
    assert max(one.t for one in low) >= 24 * 64, "tiles of keys, and devices of as many parts"
