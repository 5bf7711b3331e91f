"""Runs the whole court (evaluation of the advice), and writes results as a table and a file.

``python -m mla_var3.knowledge court`` calls it; the site reads the file.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mla_var3.knowledge import history
from mla_var3.knowledge.backtest import backtest
from mla_var3.knowledge.court import cases, judging, observing
from mla_var3.knowledge.court.judging import Score, Verdict, score
from mla_var3.knowledge.pages import Catalogue, load_all
from mla_var3.paths import repo_root, write_atomic

#: The outcome, and its page of the site.
OUTCOME = "results/court/outcome.json"
PAGE = "docs/contributing/court.md"
START, END = "<!-- court: begin -->", "<!-- court: end -->"


@dataclass(frozen=True)
class Session:
    """All that the court heard.

    Attributes:
        seeded: Advice for kernels of ours that one edit made slow.
        held_out: The same without what the design itself taught.
        good: Advice for good kernels.
        strangers: Advice for kernels of others.
        history: Advice for versions that a later one, or one of another design, beat.
        history_held_out: The same without what the design itself taught.
        promises: Gains promised over gains measured, each design held out; ascending.
    """

    seeded: Sequence[Verdict]
    held_out: Sequence[Verdict]
    good: Sequence[Verdict]
    strangers: Sequence[Verdict]
    history: Sequence[Verdict]
    history_held_out: Sequence[Verdict]
    promises: Sequence[float] = ()

    @property
    def false_alarms(self) -> int:
        """Good kernels for which something is advised."""
        return sum(verdict.place != 1 for verdict in self.good)

    @property
    def scores(self) -> Mapping[str, Score]:
        """Scores by what was tried."""
        return {
            "slow-downs of one edit": score(self.seeded),
            "the same, design held out": score(self.held_out),
            "kernels of others": score(self.strangers),
            "history, per transition": score(self.history),
            "the same history, design held out": score(self.history_held_out),
        }

    def table(self) -> str:
        """The scores as a Markdown table."""
        lines = [
            "| cases | number | right page first | in the top three | best constant answer, first "
            "| best constant three | by chance |",
            "|---|---|---|---|---|---|---|",
        ]
        for name, found in self.scores.items():
            shares = (
                found.first, found.top, found.constant_first, found.constant_top,
                found.random_first,
            )  # fmt: skip
            cells = " | ".join(f"{share:.0%}" for share in shares)
            lines.append(f"| {name} | {found.cases} | {cells} |")
        lines += ["", f"False alarms: {self.false_alarms} of {len(self.good)} good kernels."]
        return "\n".join([*lines, *self._calibration()])

    def _calibration(self) -> list[str]:
        """How far promised gains are from measured ones."""
        if not self.promises:
            return []
        off = sorted(max(ratio, 1 / ratio) for ratio in self.promises)
        far = off[int(0.9 * (len(off) - 1))]
        return [
            "",
            f"Promised over measured gain, {len(off)} steps, each design held out: "
            f"{statistics.median(self.promises):.2f} in the median; off by a factor of "
            f"{statistics.median(off):.2f} in the median and {far:.2f} at the 90th percentile.",
        ]

    def missed(self) -> list[str]:
        """A line for each case whose first page is not right."""
        every = (*self.seeded, *self.good, *self.strangers, *self.history)
        return [str(verdict) for verdict in every if verdict.place != 1]


def hold(
    catalogue: Catalogue | None = None,
    *,
    fresh: bool = False,
    root: Path | None = None,
    say: Callable[[str], None] = print,
) -> Session:
    """Observe what has not been observed, and hear all cases.

    Args:
        catalogue: The pages; those of the checkout by default.
        fresh: Compile and count all kernels anew.
        root: Top of the checkout.
        say: Told of each kernel that is observed.
    """
    catalogue = catalogue or load_all(root or repo_root())
    seeded, goods = cases.seeded(root)
    wanted = (*goods, *(case.slow for case in seeded))
    table = observing.renew(wanted, fresh=fresh, root=root, say=say)
    gains = history.gains(catalogue)
    replays = [backtest(catalogue, held_out=held_out) for held_out in (False, True)]
    plain, without = [
        [*judging.try_history(replayed),
         *judging.try_past(cases.past(root), catalogue, gains, held_out=bool(held))]
        for held, replayed in enumerate(replays)
    ]  # fmt: skip
    return Session(
        judging.try_seeded(seeded, table, catalogue, gains),
        judging.try_seeded(seeded, table, catalogue, gains, held_out=True),
        judging.try_good(goods, table, catalogue, gains),
        judging.try_strangers(cases.strangers(root), catalogue, gains, root),
        plain,
        without,
        judging.promises(replays[1]),
    )


def write(session: Session, root: Path | None = None) -> list[Path]:
    """Write the outcome and the table of its page."""
    top = root or repo_root()
    content = {
        "scores": {name: dataclasses.asdict(found) for name, found in session.scores.items()},
        "false_alarms": session.false_alarms,
        "good": len(session.good),
        "promised_over_measured": [round(ratio, 3) for ratio in session.promises],
        "missed": session.missed(),
    }
    outcome, page = top / OUTCOME, top / PAGE
    outcome.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(outcome, json.dumps(content, indent=1) + "\n")
    text = page.read_text(encoding="utf-8")
    head, _, rest = text.partition(START)
    _, _, tail = rest.partition(END)
    lines = ["", session.table(), "", "Where the first page is not right:", ""]
    lines += [f"- `{line.strip()}`" for line in session.missed()] or ["- nowhere"]
    write_atomic(page, f"{head}{START}\n" + "\n".join(lines) + f"\n\n{END}{tail}")
    return [outcome, page]
