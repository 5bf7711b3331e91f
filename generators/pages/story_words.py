"""Fills in a story's words: figures from records, addresses of the site, traces by name."""

from __future__ import annotations

import html
import re
from collections.abc import Callable

from generators.model import stories, story_times, timelines
from generators.model.run import Run
from generators.model.site import Site
from generators.model.stories import Story
from generators.model.story_times import Times, Together
from generators.model.timelines import Timeline
from generators.write.text import rendered
from mla_var3.errors import KnowledgeError
from mla_var3.knowledge.evidence import Link
from mla_var3.knowledge.pages import Document

_FIGURE = re.compile(r"\{([a-z]+)(?::([\w-]+))?\}")
#: Directives write "us"; a story's own words have the sign.
_MICROSECONDS = re.compile(r"(?<=\d) us\b")


def source_of(story: Story) -> str:
    """File of a story."""
    return f"{stories.FOLDER}/{story.key}.toml"


def ends(story: Story, found: Times) -> tuple[str, str]:
    """Times of a story's first step and of its fastest, as a headline has them."""
    us = [group.us(step.key) for step in story.steps if (group := found.of(step.key))]
    return (f"{us[0]:.0f}", f"{min(us):.0f}") if us else ("?", "?")


class Told:
    """A story with what its words and figures come from."""

    def __init__(self, site: Site, story: Story, found: Times, link: Link) -> None:
        self.site, self.story, self.times, self.link = site, story, found, link
        self.versions = story_times.versions(story)
        self.loaded: dict[str, Timeline] = {}

    @property
    def name(self) -> str:
        """The story's file, for errors."""
        return source_of(self.story)

    def prose(self, text: str) -> str:
        """Markdown of the story with its figures and the site's addresses."""
        document = Document(self.site.root / self.name, self.name, "text", text, text)
        known = rendered(document, self.site.catalogue, self.link)
        known = _MICROSECONDS.sub(" µs", known)
        return _FIGURE.sub(lambda found: self._figure(found[1], found[2]), known).strip()

    def _figure(self, what: str, key: str | None) -> str:
        first, last = ends(self.story, self.times)
        main = self.times.main
        whole: dict[str, Callable[[], str]] = {
            "first": lambda: first,
            "last": lambda: last,
            "peer": lambda: f"{main.peer.total.median_us:.1f}" if main and main.peer else "?",
            "sustained": lambda: _sustained(self),
        }
        if key is None and what in whole:
            return whole[what]()
        group = self.times.of(key or "")
        if key is None or group is None:
            raise KnowledgeError(f"{self.name}: no run tells {{{what}:{key}}}")
        run = group.run_of(key)
        energy = run.outcome.energy if run.outcome else None
        told: dict[str, float | None] = {
            "us": group.us(key),
            "share": group.share(key),
            "back": energy.launch_us if energy else None,
            "watts": energy.watts if energy else None,
            "clock": energy.sm_clock_mhz if energy else None,
        }
        if told.get(what) is None:
            raise KnowledgeError(f"{self.name}: no record tells {{{what}:{key}}}")
        value = told[what] or 0.0
        rounded = {"share": f"{value:.2f}", "watts": f"{value:.0f}", "clock": f"{value:,.0f}"}
        return f"[{rounded.get(what, f'{value:.1f}')}]({self.link(cited(run))})"

    def timeline(self, key: str) -> Timeline:
        """A committed timeline, of the machine code that its version has."""
        if key not in self.loaded:
            trace = self.story.trace(key)
            version = story_times.find(self.story, trace.version)
            if version is None:
                raise KnowledgeError(f"{self.name}: there is no {trace.version} for {key}")
            self.loaded[key] = timelines.load(self.site.root, key, version)
        return self.loaded[key]


def peer_name(told: Told) -> str:
    """What readers call the design whose time is 1."""
    title = {"deepseek_flash_mla": "FlashMLA"}
    return title.get(told.story.peer, told.story.peer)


def day_of(group: Together) -> str:
    """The day of a run in words."""
    return f"{group.day.day} {group.day:%B %Y}"


def _sustained(told: Told) -> str:
    """Time and clock of a call back to back, of the versions of the main run and the peer."""
    main = told.times.main
    if main is None:
        return ""
    named = [(step.version, main.runs[step.key]) for step in told.story.steps
             if step.key in main.runs]  # fmt: skip
    if main.peer:
        named.insert(0, (peer_name(told), main.peer))
    rows = [
        (name, run, energy)
        for name, run in named
        if run.outcome and (energy := run.outcome.energy) and energy.sm_clock_mhz
    ]
    if not rows:
        return ""
    most = max(energy.launch_us for _, _, energy in rows)
    cells = ""
    for name, run, energy in rows:
        time = _bar(energy.launch_us / most, f"{energy.launch_us:.1f} µs", run is main.peer)
        held = ", power cap" if "power cap" in energy.throttle else ""
        title = f'<th scope="row">{html.escape(name)}</th>'
        cells += f"<tr>{title}<td>{time}</td><td>{energy.sm_clock_mhz:,.0f} MHz{held}</td></tr>"
    records = ", ".join(f"[{name}]({told.link(cited(run))})" for name, run, _ in rows)
    return (
        '<div class="story__bars"><table class="bars"><caption>One call, back to back for a '
        f'second, in the run of {day_of(main)}</caption><thead><tr><th scope="col">Version</th>'
        '<th scope="col">Time</th><th scope="col">Clock of the SMs</th></tr></thead>'
        f"<tbody>{cells}</tbody></table></div>\n\nRecords: {records}."
    )


def _bar(share: float, words: str, peer: bool) -> str:
    kind = " bars__bar--peer" if peer else ""
    return (
        f'<span class="bars__bar{kind}" style="width:{60 * share:.0f}%"></span> '
        f"<span>{words}</span>"
    )


def cited(run: Run) -> str:
    """Address of a record in its own run, whatever was measured since."""
    return f"{run.name}@{run.record.run}"
