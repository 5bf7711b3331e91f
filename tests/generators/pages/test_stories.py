"""Stories: figures of records, code of the sources, pictures of the version; runs stand apart."""

from __future__ import annotations

import json
import re
import shutil
from itertools import pairwise

import pytest

from generators.committed import timelines as making
from generators.draw import stairs
from generators.model import pairs, stories, story_times, timelines
from generators.model.stories import MOST_LINES, Excerpt
from generators.pages import home, story_pictures
from generators.pages import stories as told
from generators.pages.story_words import Told
from generators.write import excerpts
from mla_var3.errors import KnowledgeError
from mla_var3.evidence import sources
from mla_var3.paths import repo_root
from tests.generators.runs import at, on, timed

ROOT = repo_root()
STORIES = {story.key: story for story in stories.load_all(ROOT)}
FIRST = STORIES["flash-mla-in-python"]
PEER, OURS = "deepseek_flash_mla", "flash_mla@cute-dsl"


def page(site, key: str = FIRST.key) -> str:
    return next(str(p.content) for p in told.pages(site) if p.path == f"worklog/{key}.md")


def ours(version: str, us: float, run: str, **changes):
    problem = {**FIRST.problem, "p": 64, "k": 512}
    slug = f"x-{run}-{us:g}"
    return timed(version, us, run=run, design=OURS, problem=problem, slug=slug, **changes)


def peer(us: float, run: str):
    problem = {**FIRST.problem, "p": 64, "k": 512}
    return timed("v0", us, run=run, design=PEER, problem=problem, slug=f"p-{run}-{us:g}")


@pytest.mark.parametrize("key", STORIES)
def test_each_step_says_one_idea_with_code_and_its_time(site, key: str) -> None:
    story, text = STORIES[key], page(site, key)
    found = story_times.times(site, story)
    assert 5 <= len(story.steps) <= 8
    for step in story.steps:
        assert 1 <= sum(e.lines for e in step.excerpts) <= MOST_LINES
        part = text[text.index(f'data-step="{step.key}"') :]
        group = found.of(step.key)
        assert group is not None
        assert f"<strong>{group.us(step.key):,.1f}</strong> µs" in part[:6000]


def test_the_command_stands_with_the_conditions_and_at_the_end(site) -> None:
    text, command = page(site), f"`{FIRST.command}`"
    assert text.index("Conditions, said once") < text.index(command) < text.index("data-step=")
    assert text.index("**Sources**") < text.rindex(command)


def test_all_pictures_of_the_first_story_are_traces_of_the_versions(site) -> None:
    text = page(site)
    assert all(step.pictures for step in FIRST.steps)
    shown = {panel.trace for step in FIRST.steps for pic in step.pictures for panel in pic.panels}
    for key in shown:
        assert f"<code>flash_mla@cute-dsl {FIRST.trace(key).version}</code>" in text
    beside = [trace.version for trace in FIRST.traces if trace.key not in shown]
    for version in beside:  # Their own pages have the picture.
        found = story_times.find(FIRST, version)
        assert "One CTA, by warp" in story_pictures.picture_of(site, found)
    assert text.count("lanes__origin") == sum(len(step.pictures) for step in FIRST.steps)


def test_no_axis_mixes_runs_and_no_share_divides_two(site) -> None:
    runs = (
        ours("v0", 120, "early"), ours("v1", 110, "early"), ours("v8", 90, "early"),
        ours("v8", 80, "late"), ours("v10", 75, "late"), ours("v13", 70, "late"), peer(100, "late"),
    )  # fmt: skip
    found = story_times.times(on(site, *runs), FIRST)
    assert (found.main.run, found.apart.run) == ("late", "early")
    assert found.of("v8").share("v8") == 0.8
    assert found.of("v0").share("v0") is None
    assert found.of("v2") is None
    flights = told.flights(on(site, *runs), FIRST)
    assert [[s.us for s in f.stairs] for f in flights] == [[120, 110], [80, 75, 70]]
    shown = stairs.figure(flights, "")
    assert shown.count(f">{stairs.UNIT}<") == 2  # On a wide and on a narrow screen.
    assert [f.peer for f in flights] == [None, ("FlashMLA", 100.0)]


def test_a_run_with_all_steps_replaces_both(site) -> None:
    old = [ours("v0", 120, "early"), ours("v8", 80, "late"), peer(100, "late")]
    whole = [ours(step.version, 60, "whole") for step in FIRST.steps]
    found = story_times.times(on(site, *old, *whole, peer(90, "whole")), FIRST)
    assert found.main.run == "whole"
    assert found.apart is None
    assert {found.of(step.key).share(step.key) for step in FIRST.steps} == {60 / 90}


def test_other_problems_and_modes_do_not_count(site) -> None:
    far = at(OURS, "v9", 2, 50.0)
    assert story_times.times(on(site, far), FIRST).groups == []


V3 = "cute_python/mla/flash_mla/flash_mla_v3/flash_mla_v3.py"


@pytest.mark.parametrize(
    ("old", "new", "fails"),
    [
        ("(1, 1, self.splits)", "(1, 1, 2 * self.splits)", True),
        ('return {"grid"', '# The keys of a row tile.\n        return {"grid"', False),
    ],
    ids=["code", "comment"],
)
def test_a_version_that_was_edited_fails_the_build(site, tmp_path, monkeypatch, old, new, fails):
    copy = tmp_path / "kernels"
    shutil.copytree(ROOT / "kernels", copy, ignore=shutil.ignore_patterns("__pycache__"))
    text = (copy / V3).read_text()
    assert text.count(old) == 1
    (copy / V3).write_text(text.replace(old, new))
    monkeypatch.setattr(sources, "kernels_dir", lambda: copy)
    if not fails:
        assert told.pages(site)
        return
    with pytest.raises(KnowledgeError, match=r"v3\.json is of .* v3 before .*flash_mla_v3\.py was"):
        told.pages(site)


def test_a_version_that_compiles_to_other_code_fails_the_build(site, monkeypatch) -> None:
    made = timelines.code_of
    monkeypatch.setattr(
        timelines, "code_of", lambda v, root: "0" if v.version == "v3" else made(v, root)
    )
    with pytest.raises(KnowledgeError, match=r"v3\.json is of other machine code .* makes it anew"):
        told.pages(site)


def test_the_digest_follows_the_machine_code(site, tmp_path) -> None:
    version = story_times.versions(FIRST)["v3"]
    source = ROOT / "results/fingerprints/cute_python/mla/flash_mla.json"
    copy = tmp_path / source.relative_to(ROOT)
    copy.parent.mkdir(parents=True)
    held = json.loads(source.read_text())
    copy.write_text(json.dumps(held))
    before = timelines.code_of(version, tmp_path)
    assert before == timelines.code_of(version, ROOT)
    stage = held["versions"]["v3"]["builds"][0]["compiled"][0]["stages"]["attention"]
    stage["code"] = "0" * 16
    copy.write_text(json.dumps(held) + " ")
    assert timelines.code_of(version, tmp_path) != before
    del held["versions"]["v3"]
    copy.write_text(json.dumps(held))
    with pytest.raises(KnowledgeError, match="does not have v3"):
        timelines.code_of(version, tmp_path)


def test_a_missing_timeline_says_what_makes_it(tmp_path) -> None:
    version = story_times.versions(FIRST)["v0"]
    with pytest.raises(KnowledgeError, match=r"generators.committed.timelines flash-mla-v0 makes"):
        timelines.load(tmp_path, "flash-mla-v0", version)


SOURCE = (
    "def f():\n    a = 1\n    b = 2\n    a = 3\n\n\nclass C:\n    def f(self):\n        return 4\n"
)


@pytest.mark.parametrize(
    ("excerpt", "said"),
    [
        ({"first": "a = ", "lines": 1}, "in 2 lines"),
        ({"first": "gone", "lines": 1}, "in 0 lines"),
        ({"first": "b = 2", "lines": 9, "within": "f"}, "fewer than the 9"),
        ({"first": "b = 2", "lines": 1, "within": "g"}, "defines g 0 times"),
        ({"first": "b = 2", "lines": 1, "file": "other.py"}, "there is no other.py"),
        ({"first": "b = 2", "lines": 1, "marked": ["a = 1"]}, "in 0 lines"),
    ],
)
def test_code_that_the_source_does_not_have_fails_the_build(tmp_path, excerpt, said) -> None:
    (tmp_path / "a.py").write_text(SOURCE)
    with pytest.raises(KnowledgeError, match=re.escape(said)):
        excerpts.block(Excerpt(**{"file": "a.py", **excerpt}), tmp_path, "a story")


def test_code_has_the_numbers_of_the_source_and_marks(tmp_path) -> None:
    (tmp_path / "a.py").write_text(SOURCE)
    wanted = Excerpt(file="a.py", first="return 4", within="C.f", lines=1, marked=("return 4",))
    block = excerpts.block(wanted, tmp_path, "a story")
    assert 'linenums="9"' in block
    assert 'hl_lines="1"' in block
    assert "\nreturn 4\n" in block


def test_each_tile_is_scored_once_and_multiplied_by_both_sides() -> None:
    version = story_times.versions(FIRST)["v0"]
    found = timelines.load(ROOT, "flash-mla-v0", version).lanes
    tiles = pairs.named(found)
    for side, lane in enumerate(pairs.SIDES):
        used = [n.tile for n in tiles[lane] if n.what == "output"]
        assert sorted(used) == list(range(8))
        scored = {n.tile for n in tiles[lane] if n.what == "scores"}
        assert scored == set(range(side, 8, 2))
    assert {n.tile for n in tiles["0 load 2"]} == {0, 2, 4, 6}
    assert {n.tile for n in tiles["0 load 3"]} == {1, 3, 5, 7}
    made = pairs.handovers(found)
    assert len(made) == 8
    for each in made:
        assert each.ready <= each.used
        assert {each.giver, each.taker} == set(pairs.SIDES)


def test_a_picture_of_tiles_numbers_them_and_draws_what_is_handed_over(site) -> None:
    figure = page(site).partition('data-step="v0"')[2].partition("</figure>")[0]
    assert figure.count("the weights are ready") == 4  # Twice, on a wide and on a narrow screen.
    assert ">4</text>" in figure


def test_a_time_leads_to_the_record_of_its_own_run(site) -> None:
    found = story_times.times(site, FIRST)
    text = page(site).partition("**Sources**")[2]
    name = found.main.peer.name
    assert f"FlashMLA {found.main.peer.total.median_us:.2f}]" in text
    address = site.addresses[f"{name}@{found.main.run}"]
    assert address.endswith(f"@{found.main.run}") or name in {run.name for run in site.runs}
    assert f"(../{address})" in text
    assert FIRST.command in text


def test_a_story_writes_microseconds_in_one_way(site) -> None:
    prose = re.sub(r"```.*?```", "", page(site), flags=re.DOTALL)
    assert " µs](" in prose  # A directive's figure.
    assert not re.search(r"\d us\b", prose)


def test_marks_on_one_dot_stand_in_the_order_of_the_steps() -> None:
    rows = stairs._apart([50.0, 10.0, 52.0, 49.0, 51.0], 300)
    assert sorted(range(5), key=rows.__getitem__) == [1, 0, 2, 3, 4]


def test_short_work_joins_what_is_around_it() -> None:
    bars = [("softmax", 0, 100), ("other", 100, 110), ("softmax", 110, 200), ("wait", 400, 500)]
    assert list(making._merged(bars, 40, 40)) == [("softmax", 0, 200), ("wait", 400, 500)]


def test_the_change_that_helped_most_stands_first_with_why(site) -> None:
    text = page(site)
    found = story_times.times(site, FIRST)
    steps = [
        (group.us(one.key) / group.us(two.key), two)
        for group in found.groups
        for one, two in pairwise([s for s in FIRST.steps if s.key in group.runs])
    ]
    _, best = max(steps, key=lambda step: step[0])
    said = f"**The change that helped most:** [{best.version}, {best.short}]("
    assert text.index(said) < text.index("Conditions, said once")
    assert f"flash-mla-in-python.md#{best.key})" in text
    assert said in str(home.pages(site)[0].content)
    assert told.largest(telling(on(site))) == ""


def telling(site) -> Told:
    return Told(site, FIRST, story_times.times(site, FIRST), site.link("worklog/x.md"))


def test_home_opens_with_the_first_story(site) -> None:
    runs = [ours("v0", 120, "a"), ours("v10", 75, "b"), peer(100, "b")]
    text = home.pages(on(site, *runs))[0].content
    said = (
        "went from 120 µs to 75, at 32 sequences of 4,096 tokens and 128 heads; FlashMLA takes 100."
    )
    assert text.index(said) < text.index("teaches, checks and measures GPU kernels in Python")
    assert text.index(said) < text.index("[Read how](worklog/flash-mla-in-python.md)")
    assert "run of" in text
    assert text.count("Over the same pages as FlashMLA") == 1
    assert page(site).count("Over the same pages as FlashMLA**") == 1


def test_the_line_of_the_peer_runs_through_no_number() -> None:
    steps = (("v0", 116.0), ("v13", 80.5), ("v18", 73.8))
    flight = stairs.Flight("a run", tuple(stairs.Stair(v, v, us) for v, us in steps), ("P", 75.0))

    def at(drawn: str, number: float) -> tuple[float, float, str]:
        x, y, anchor = re.search(
            rf'<text x="([\d.]+)" y="([\d.]+)" text-anchor="(\w+)"[^>]*>{number}<', drawn
        ).groups()
        return float(x), float(y), anchor

    wide, narrow = stairs._columns([flight]), stairs._rows([flight])
    across = float(re.search(r'd="M[\d.]+ ([\d.]+) L', wide)[1])
    down = float(re.search(r'd="M([\d.]+) [\d.]+ L', narrow)[1])
    for _, us in steps:
        _, y, _ = at(wide, us)
        assert not y - 14 < across < y + 2
        x, _, anchor = at(narrow, us)
        first, last = (x, x + 32) if anchor == "start" else (x - 32, x)
        assert not first - 2 < down < last + 2
