"""Full-text search of pattern pages by BM25; titles and metric names weigh more than the body."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass

import snowballstemmer

from mla_var3.errors import KnowledgeError
from mla_var3.knowledge import metrics
from mla_var3.knowledge.pages import Catalogue, Document

#: How often a field is counted against once for the body.
TITLE_WEIGHT, METRIC_WEIGHT = 5, 2

_STOP = frozenset(
    """a an and are as at be by do for from how i in is it much my of on or so that the this to what
    when which why with""".split()  # noqa: SIM905 - words read better than a list of literals
)


#: Words that engineers use for one thing. A query that says one asks for all of its group.
ALIKE = (
    ("bank", "banks"),
    ("beyond", "outside", "past"),
    ("bf16", "bfloat16"),
    ("block", "cta"),
    ("busy", "utilization", "utilisation"),
    ("cast", "convert", "astype"),
    ("catch", "compare", "comparison", "faster", "slower"),
    ("collide", "collision", "conflict"),
    ("compilation", "compile", "compiling"),
    ("cpu", "laptop"),
    ("device", "gpu", "card"),
    ("deadlock", "hang", "hung", "stuck"),
    ("error", "exception"),
    ("final", "last", "tail"),
    ("fp16", "float16", "half"),
    ("fp32", "float32"),
    ("fp8", "float8"),
    ("garbage", "incorrect", "wrong"),
    ("gemm", "matmul", "mma", "multiply", "product"),
    ("global", "gmem"),
    ("illegal", "invalid", "segfault"),
    ("jitter", "noisy", "vary", "fluctuate", "differ"),
    ("jit", "jitted"),
    ("load", "loading", "read"),
    ("multiprocessor", "sm", "sms"),
    ("number", "output", "result"),
    ("print", "printf"),
    ("shared", "smem"),
    ("slots", "occupancy"),
    ("slow", "slower"),
    ("store", "write"),
    ("throttle", "throttled", "clock", "frequency"),
    ("tmem", "tcgen05"),
    ("underutilized", "underutilised", "idle", "unused"),
)


_STEMMER = snowballstemmer.stemmer("english")

#: A figure drawn from a record: the words of its path (``results`` first) are not the page's.
_RECORD = re.compile(r"\{\{.*?\}\}")


@dataclass(frozen=True)
class Hit:
    """A page that a query found.

    Attributes:
        page: The page.
        score: BM25 score, above 0.
    """

    page: Document
    score: float


def words(text: str) -> list[str]:
    """Word stems of ``text``, in order; names such as ``spill_loads`` are split."""
    found = re.findall(r"[a-z0-9]+", text.lower())
    return [_stem(word) for word in found if word not in _STOP]


@functools.cache
def _stem(word: str) -> str:
    return str(_STEMMER.stemWord(word))


def _apart(text: str) -> str:
    """Text with names such as ``cudaErrorIllegalAddress`` as the words they are made of."""
    names = re.findall(r"\b[a-z]+(?:[A-Z][a-z]+)+\b", text)
    return " ".join([text, *(re.sub(r"(?=[A-Z])", " ", name) for name in names)])


def meant(wanted: list[str]) -> list[str]:
    """The words of a query with those that others use for the same, each once."""
    more = (other for word in wanted for other in alike().get(word, ()))
    return list(dict.fromkeys([*wanted, *more]))


@functools.cache
def alike() -> dict[str, list[str]]:
    """The stems that mean the same, by each of them."""
    found: dict[str, list[str]] = {}
    for group in ALIKE:
        stems = sorted({_stem(word) for word in group})
        for stem in stems:
            found.setdefault(stem, []).extend(stems)
    return found


def _metric_words(names: Iterable[str]) -> str:
    known = metrics.catalogue()
    return " ".join(
        f"{name} {known[name].description}" if name in known else name for name in names
    )


def page_words(page: Document) -> list[str]:
    """The words that a page is found by."""
    meta = page.pattern
    named = [*meta.affects, *(trigger.metric for trigger in meta.triggers)]
    fields = " ".join((meta.kind, meta.scope, *meta.regimes, *meta.archs))
    return (
        words(f"{meta.id} {meta.title}") * TITLE_WEIGHT
        + words(" ".join(meta.symptoms)) * TITLE_WEIGHT
        + words(_metric_words(dict.fromkeys(named))) * METRIC_WEIGHT
        + words(fields)
        + words(_RECORD.sub(" ", page.body))
    )


def query(text: str, catalogue: Catalogue, top: int = 10) -> list[Hit]:
    """Pages for a query, best first.

    Args:
        text: Words in any order; case, plurals and stop words do not matter.
        catalogue: Where pages are looked for.
        top: Most hits.

    Returns:
        Pages that hold at least one of the words; of equal scores the smaller id first.

    Raises:
        KnowledgeError: The query has no word to look for.
    """
    wanted = meant(words(_apart(text)))
    if not wanted:
        raise KnowledgeError(f"query {text!r} has no word to look for")
    pages = catalogue.patterns
    scored = scores([page_words(page) for page in pages], wanted)
    hits = [Hit(page, score) for page, score in zip(pages, scored, strict=True) if score > 0]
    return sorted(hits, key=lambda hit: -hit.score)[:top]


def scores(corpus: list[list[str]], wanted: list[str]) -> list[float]:
    """BM25 score of each document of a corpus; 0 where it holds none of the words.

    Args:
        corpus: The words of each document.
        wanted: Words to look for.
    """
    known = set().union(*corpus)
    wanted = [word for word in wanted if word in known]
    if not wanted:
        return [0.0] * len(corpus)
    # Here and not above: bm25s imports JAX where it finds it, which takes most of a GPU's memory.
    import bm25s

    index = bm25s.BM25()
    index.index(corpus, show_progress=False)
    return [float(score) for score in index.get_scores(wanted)]
