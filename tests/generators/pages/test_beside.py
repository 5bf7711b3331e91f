"""Pages of two versions beside each other: all that a stated mean rests on."""

from __future__ import annotations

import re

from generators.model import stories
from generators.pages import beside, version_pages
from mla_var3.knowledge import markdown
from mla_var3.runtime import registry
from tests.generators.runs import rows


def test_a_stated_mean_leads_to_every_problem_behind_it(site):
    v17, v18 = (registry.find("flash_mla@cute-dsl", version) for version in ("v17", "v18"))
    page = version_pages._version(site, v18, v17, None)
    text = str(page.content)
    link = re.search(r"takes \[(\S+ % (?:less|more) time)\]\((\S+)\) over (\d+) problems", text)
    name = link[2].removeprefix("../../../../")
    (found,) = [page for page in beside.pages(site) if page.path == name]
    table = rows(str(found.content), "# ")
    assert len(table) == int(link[3])
    assert f"takes {link[1]}" in found.content
    assert all(re.fullmatch(r"\[\S+ us\]\(\S+\)", row[1]) for row in table)
    assert all(re.search(r"time$", row[3]) for row in table)


def test_a_mean_that_only_a_story_states_has_its_page(site):
    said = [story.model_dump_json() for story in stories.load_all(site.root)]
    stated = [one for text in said for one in markdown.directives(text) if one.name == "mean"]
    named = {one.arguments[:3] for one in stated}
    assert named
    assert named <= {(p.first, p.second, p.run) for p in beside._pairs(site).values()}


def test_a_mean_is_of_the_shares_in_its_table(site):
    for pair in beside._pairs(site).values():
        product = 1.0
        for other, mine in pair.pairs:
            product *= mine.outcome.total.median_us / other.outcome.total.median_us
        assert abs(product ** (1 / len(pair.pairs)) - pair.mean("total_us")) < 1e-9
