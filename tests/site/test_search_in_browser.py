"""The search finds what a kernel engineer asks for, and costs nothing before the first key."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from site_browser import BASE, OpenTab, Tab

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]


def _queries(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tomllib.loads(Path(__file__).with_name(name).read_text())["query"]
    return found


QUERIES = _queries("queries.toml")
PAGES = {query["words"]: query["pages"] for query in QUERIES}

#: Asks the worker itself, as the theme does: all questions over one index.
ASK = """async ([worker, questions]) => {
    const search = new Worker(worker);
    const ask = (message) => new Promise((resolve) => {
        search.onmessage = (event) => resolve(event.data);
        search.postMessage(message);
    });
    await ask({type: 0, data: {config: {}, docs: [], options: {}}});
    const answers = [];
    for (const words of questions) {
        const {data} = await ask({type: 2, data: words});
        answers.push(data.items.map(items => items.map(({location, text, title}) => (
            {location, text, title}
        ))));
    }
    return answers;
}"""

#: Asks at every key, without a wait for answers, as the theme does for somebody who types fast.
TYPE = """async ([worker, words]) => {
    const search = new Worker(worker);
    const answers = [];
    const done = new Promise((resolve) => {
        search.onmessage = ({data}) => {
            if (data.type === 3) answers.push(data.data.items.map(items => items[0].location));
            if (answers.length) {
                clearTimeout(search.still);
                search.still = setTimeout(() => resolve(answers), 3000);
            }
        };
    });
    search.postMessage({type: 0, data: {config: {}, docs: [], options: {}}});
    for (let end = 1; end <= words.length; end++) {
        search.postMessage({type: 2, data: words.slice(0, end)});
    }
    return done;
}"""


def ask(tab: Tab, *questions: str) -> list[list[list[dict[str, Any]]]]:
    """For each question the hits: a list of sections per page."""
    worker = f"{BASE}assets/js/search-worker.js"
    found: list[list[list[dict[str, Any]]]] = tab.page.evaluate(ASK, [worker, list(questions)])
    return found


def test_nine_of_ten_queries_have_their_page_in_the_first_three_hits(open_tab: OpenTab):
    tab = open_tab()
    tab.open("404.html")
    answers = ask(tab, *(query["words"] for query in QUERIES))
    missed = {}
    for query, hits in zip(QUERIES, answers, strict=True):
        first = [items[0]["location"].partition("#")[0] for items in hits[:3]]
        if not set(first) & set(query["pages"]):
            missed[query["words"]] = first
    assert len(QUERIES) == 294
    assert len(missed) <= 7, missed


GUIDES = {
    "own cuTile kernel without a GPU": "interpreter/",
    "own CuTe DSL kernel without a GPU": "emulator/",
    "how to profile a kernel": "skills/profile-kernel/",
    "learn the CuTe DSL": "skills/learn-cute-dsl/",
    "replace FlashMLA functions": "serving/",
    "drop-in replacement for flash_mla": "serving/",
    "use in place of FlashMLA": "serving/",
    "failed ideas sparse decode": "kernels/mla/cute-dsl/sparse_mla/",
}


def test_a_guide_comes_before_the_glossary(open_tab: OpenTab):
    tab = open_tab()
    tab.open("404.html")
    answers = ask(tab, *GUIDES)
    firsts = [hits[0][0]["location"].partition("#")[0] for hits in answers]
    assert firsts == list(GUIDES.values())


def test_sizes_lead_to_the_advisor_measured_or_not(open_tab: OpenTab):
    tab = open_tab()
    tab.open("404.html")
    for hits in ask(tab, "b=128 h=128 s=1 t=4096 bf16", "b=32 s=1 t=4096", "b=77 h=128 s=1 t=4096"):
        assert hits[0][0]["location"] == "mla/"


def test_what_failed_leads_to_a_design_that_collects_it(open_tab: OpenTab):
    tab = open_tab()
    tab.open("404.html")
    (hits,) = ask(tab, "what failed")
    # A campaign may have a section of that very name, which comes first.
    near = [item["location"] for items in hits[:3] for item in items]
    assert any(place.endswith("#tried-and-failed") for place in near)


@pytest.mark.parametrize("words", ["spill", "head grouping", "mla_var6_plus v4", "ridge point"])
def test_the_field_lists_a_wanted_page_within_three_hits(open_tab: OpenTab, words: str):
    tab = open_tab()
    tab.open("")
    hits = tab.search(words)[:3]
    assert any(page in hit for hit in hits for page in PAGES[words]), hits
    tab.check()


def test_a_hit_opens(open_tab: OpenTab):
    tab = open_tab()
    tab.open("")
    tab.open(tab.search("mla_var6_plus v4")[0])
    assert "mla_var6_plus v4" in tab.page.inner_text("h1")
    tab.check()


def test_a_hit_says_why_it_is_one(open_tab: OpenTab):
    tab = open_tab()
    tab.open("404.html")
    synonym, prose, nothing = ask(tab, "logsumexp", "spilling", "<img src=x>")
    assert "Also called: <mark data-md-highlight>logsumexp</mark>" in synonym[0][0]["text"]
    assert any("<mark data-md-highlight>" in items[0]["text"] for items in prose[:3])
    assert "<img" not in str(nothing)


def test_the_index_is_fetched_at_the_first_key(open_tab: OpenTab):
    tab = open_tab()
    asked: list[str] = []
    tab.page.on("request", lambda request: asked.append(request.url))
    tab.open("glossary/")
    tab.page.wait_for_load_state("networkidle")
    tab.page.click(".md-search__input", force=True)
    assert not [url for url in asked if "documents.json" in url or "minisearch" in url]
    tab.page.keyboard.type("roofline")
    tab.page.wait_for_selector(".md-search-result__item a")
    assert len([url for url in asked if url.endswith("search/documents.json")]) == 1
    tab.page.click(".md-search-result__item a")
    tab.page.wait_for_selector(".md-content h1:has-text('Roofline')")
    tab.check()


def test_every_wanted_page_is_there(open_tab: OpenTab, built):
    wanted = {page for query in QUERIES for page in query["pages"]}
    missing = {page for page in wanted if not (built.online / page / "index.html").is_file()}
    assert not missing


QUESTIONS = _queries("api_questions.toml")


def test_nine_of_ten_questions_on_the_apis_have_their_page_in_the_first_three_hits(
    open_tab: OpenTab,
):
    tab = open_tab()
    tab.open("404.html")
    answers = ask(tab, *(query["words"] for query in QUESTIONS))
    missed = {}
    for query, hits in zip(QUESTIONS, answers, strict=True):
        first = [items[0]["location"].partition("#")[0] for items in hits[:3]]
        if not set(first) & set(query["pages"]):
            missed[query["words"]] = first
    assert len(QUESTIONS) == 118
    assert len(missed) <= 6, missed


@pytest.mark.parametrize(
    ("name", "count", "least"),
    [
        ("reader_sentences.toml", 20, 17),
        ("sentences.toml", 20, 15),
        ("held_out_sentences.toml", 30, 22),
        ("neighbors.toml", 214, 205),
        ("held_out_neighbors.toml", 30, 24),
        ("more_neighbors.toml", 73, 69),
    ],
)
def test_sentences_have_their_page_in_the_first_three_hits(
    open_tab: OpenTab, name: str, count: int, least: int
):
    sentences = _queries(name)
    tab = open_tab()
    tab.open("404.html")
    answers = ask(tab, *(query["words"] for query in sentences))
    missed = [
        query["words"]
        for query, hits in zip(sentences, answers, strict=True)
        if not {items[0]["location"].partition("#")[0] for items in hits[:3]} & set(query["pages"])
    ]
    assert len(sentences) == count
    # Which ones are missed is nobody's business where they are held out.
    assert count - len(missed) >= least, missed if "held_out" not in name else len(missed)


#: What people say around a subject; the words are of no page.
FRAMES = (
    "I have been fighting with {} since yesterday and my boss wants an answer before lunch",
    "Could somebody please explain {} to me, the slides from our meeting made no sense?",
    "We rent two machines and {} keeps coming up in the discussion, what should I know?",
    "Honestly, what is the deal with {}, I never understood it at university.",
)


def test_words_around_a_query_do_not_hide_its_page(open_tab: OpenTab):
    tab = open_tab()
    tab.open("404.html")
    queries = QUERIES[::4]
    said = [FRAMES[at % 4].format(query["words"]) for at, query in enumerate(queries)]
    missed = {
        words: [items[0]["location"] for items in hits[:3]]
        for words, query, hits in zip(said, queries, ask(tab, *said), strict=True)
        if not {items[0]["location"].partition("#")[0] for items in hits[:3]} & set(query["pages"])
    }
    assert len(missed) <= len(queries) // 10, missed


def test_the_same_question_has_the_same_hits_whatever_was_asked_before(open_tab: OpenTab):
    tab = open_tab()
    tab.open("404.html")
    words = [query["words"] for query in _queries("reader_sentences.toml")]
    assert ask(tab, *words) == ask(tab, *reversed(words))[::-1]


def test_of_keys_that_come_faster_than_answers_the_last_is_answered(open_tab: OpenTab):
    tab = open_tab()
    tab.open("404.html")
    words = _queries("reader_sentences.toml")[0]["words"]
    answers = tab.page.evaluate(TYPE, [f"{BASE}assets/js/search-worker.js", words])
    (alone,) = ask(tab, words)
    assert answers[-1] == [items[0]["location"] for items in alone]
    assert len(answers) <= 5 < len(words)


@pytest.mark.parametrize("words", ["H100 to B200", "RTX 5090 memory bandwidth", "v3"])
def test_pages_of_one_family_do_not_fill_the_first_hits(open_tab: OpenTab, words: str):
    tab = open_tab()
    tab.open("404.html")
    (hits,) = ask(tab, words)
    first = [items[0]["location"].partition("#")[0] for items in hits[:8]]
    devices = [page for page in first if re.match(r"(devices|mla|results)/(nvidia|amd)-", page)]
    assert len(first) == 8
    assert len(devices) <= 2, first
