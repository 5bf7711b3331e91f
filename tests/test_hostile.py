"""Whatever bytes a parser meets, it ends soon, with a value or with one sentence.

The run takes fixed seeds; ``nox -s fuzz`` takes as many as it is told.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from mla_var3.errors import HyperMlaError
from tests.hostile import PARSERS, Parser

SEEDS = 30


def said(parser: Parser, seed: int, folder: Path) -> str | None:
    """The sentence that mangled text ends in; None where it was read."""
    try:
        parser(parser.mangle(parser.sample, seed), folder)
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
