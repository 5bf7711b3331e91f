"""The one writer of Markdown tables, read back by two parsers."""

from __future__ import annotations

import markdown as python_markdown
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from mla_var3.tables import cell, code, microseconds, table

WORDS = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1)


@pytest.mark.parametrize(
    ("time", "said"),
    [(1234.567, "1,234.57"), (1.0, "1.00"), (0.0684, "0.068"), (1.7e-5, "1.7e-05")],
)
def test_no_time_is_written_as_nothing(time: float, said: str) -> None:
    assert microseconds(time) == said


def test_table_as_written() -> None:
    shown = table(["a", "b"], [["x", 1], ["y|z", "two\nlines"]], right=("b",))
    assert shown == "| a | b |\n| --- | --: |\n| x | 1 |\n| y\\|z | two lines |"


def test_no_table_without_rows() -> None:
    assert table(["a"], []) == ""


def test_empty_columns_go_unless_asked_for() -> None:
    assert table(["a", "b"], [["", "x"]]) == "| b |\n| --- |\n| x |"
    assert table(["a", "b"], [["", "x"]], all_columns=True).startswith("| a | b |")


def cells_of(shown: str) -> list[list[str]]:
    """Text of the cells as CommonMark reads the table."""
    found: list[list[str]] = []
    for token in MarkdownIt("commonmark").enable("table").parse(shown):
        if token.type == "tr_open":
            found.append([])
        elif token.type == "inline":
            assert {child.type for child in token.children or []} <= {"text", "text_special"}
            found[-1].append("".join(child.content for child in token.children or []))
    return found


@given(st.lists(st.lists(WORDS, min_size=2, max_size=2), min_size=1, max_size=4))
def test_any_text_stays_one_plain_cell(rows: list[list[str]]) -> None:
    shown = table(["a", "b"], [[cell(text) for text in row] for row in rows])
    assert cells_of(shown)[1:] == rows


@pytest.mark.parametrize("text", ["<script>alert(1)</script>", "<img src=x onerror=alert(1)>"])
@pytest.mark.parametrize("made", [cell, code])
def test_markup_is_shown_and_not_interpreted(text: str, made: object) -> None:
    assert callable(made)
    html = python_markdown.markdown(
        table(["a"], [[made(text)]]), extensions=["tables", "attr_list"]
    )
    assert "<script" not in html
    assert "<img" not in html
    assert "<td>&lt;" in html


@pytest.mark.parametrize("text", ["tile_m=64", "a[0]", "f(x) + 1"])
def test_code_that_is_harmless_stays_code(text: str) -> None:
    assert code(text) == f"`{text}`"
