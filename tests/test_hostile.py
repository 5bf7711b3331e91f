"""Whatever bytes a parser meets, it ends soon, with a value or with one sentence.

The run takes fixed seeds. ``HYPERMLA_FUZZ_SECONDS=600 pytest tests/test_hostile.py -k explore -s``
takes further ones for that time per parser.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from mla_var3.errors import HyperMlaError
from tests.hostile import PARSERS, Parser, mangled

SEEDS = 30
SECONDS = float(os.environ.get("HYPERMLA_FUZZ_SECONDS", "0"))


def said(parser: Parser, seed: int, folder: Path) -> str | None:
    """The sentence that mangled text ends in; None where it was read."""
    try:
        parser(mangled(parser.sample, seed), folder)
    except HyperMlaError as error:
        return str(error)
    return None


@pytest.mark.parametrize("parser", PARSERS, ids=lambda p: p.name)
def test_the_sample_itself_is_read(parser, tmp_path):
    parser(parser.sample, tmp_path)


@pytest.mark.parametrize("parser", PARSERS, ids=lambda p: p.name)
def test_mangled_text_is_read_or_one_sentence(parser, tmp_path):
    found = [said(parser, seed, tmp_path) for seed in range(SEEDS)]
    refused = [text for text in found if text is not None]
    assert all(text.strip() and "Traceback" not in text for text in refused)
    assert all(len(line) < 2000 for text in refused for line in text.splitlines())


@pytest.mark.skipif(not SECONDS, reason="set HYPERMLA_FUZZ_SECONDS to explore further seeds")
@pytest.mark.parametrize("parser", PARSERS, ids=lambda p: p.name)
def test_explore(parser, tmp_path):
    end, seed, longest = time.monotonic() + SECONDS, SEEDS, 0.0
    while time.monotonic() < end:
        started = time.process_time()
        said(parser, seed, tmp_path)
        longest = max(longest, time.process_time() - started)
        seed += 1
    print(f"{parser.name}: {seed - SEEDS} texts, the longest took {longest:.2f} s")
