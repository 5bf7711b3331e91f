from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mla_var3.knowledge import markdown
from mla_var3.knowledge.pages import parse_markdown
from mla_var3.tables import cell

UNITS = (
    "us", "µs", "ms", "ns", "%", " percent", "x", "GB/s", "TB/s", "TFLOP/s", "GFLOP", "FLOPs",
    "bytes", "KiB", "MB", "B", "MHz", "GHz", "W", "registers", "instructions", "SMs", "LDL",
    "cycles", " times faster", "-fold", "seconds",
)  # fmt: skip
MARKUP = st.text(alphabet="<>/!?abscript=\"'`~{}:#|[]()\\ \n-*_&;.0x%", max_size=80)


def found(text: str) -> list[str]:
    return [number for _, number in markdown.numbers_with_unit(text, text)]


@pytest.mark.parametrize("unit", UNITS)
@given(number=st.from_regex(r"[1-9][0-9]{0,4}(\.[0-9]{1,2})?", fullmatch=True))
@settings(max_examples=10)
def test_every_unit_is_found_behind_every_number(unit, number):
    space = "" if unit in ("x", "-fold") or unit.startswith(" ") else " "
    assert found(f"It is {number}{space}{unit}, roughly.")


@pytest.mark.parametrize(
    "text",
    [
        "s=16", "64x512", "64 x 512", "sm_90", "v2", "TM64", "8 warps", "2 W_v", "L2 flush",
        "n = 3", "64 \u00d7 512", "13 s", "h=128 heads", "[b, h, s]", "0.5", "1e-3", "e4m3", "2k+p",
        "three times", "GB/s", "2 x = 4", "16 rows",
    ],
)  # fmt: skip
def test_sizes_are_no_figures(text):
    assert found(text) == []


def test_figures_over_a_line_end_and_in_formulas():
    assert found("3.2\nTFLOP/s") == ["3.2 TFLOP/s"]
    assert found("$4.27\\,\\mathrm{TB/s}$")
    assert found("16-byte") == ["16-byte"]


def test_hidden_places_hold_no_figures():
    text = "[3.2x](source:a) {{ record a b }} [a](x/16%20bytes.md) https://x.org/3us"
    assert found(text) == []


@given(st.text(alphabet="ab`~\n \\>{}<", max_size=60))
def test_blanking_keeps_length_and_lines(text):
    regions = markdown.code_regions(text)
    prose = markdown.blank(text, regions)
    assert len(prose) == len(text)
    assert prose.count("\n") == text.count("\n")
    assert [i for i, c in enumerate(text) if c == "\n"] == [
        i for i, c in enumerate(prose) if c == "\n"
    ]
    assert all(a in (b, " ") for a, b in zip(prose, text, strict=True))


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=5))
def test_blanking_copes_with_overlapping_regions(pairs):
    text = "abcdefghij" * 3
    regions = [(min(a, b), max(a, b)) for a, b in pairs]
    hidden = {i for a, b in regions for i in range(a, b)}
    expected = "".join(" " if i in hidden else c for i, c in enumerate(text))
    assert markdown.blank(text, regions) == expected


def active(text: str) -> list[str]:
    """HTML and links with a foreign scheme that a CommonMark renderer would put out."""
    tokens = parse_markdown(text)
    found = []
    for token in [*tokens, *(child for t in tokens for child in t.children or ())]:
        if token.type in ("html_block", "html_inline"):
            found.append(token.content)
        target = str(token.attrs.get("href") or token.attrs.get("src") or "")
        if re.match(r"\s*[a-zA-Z]*:", target) and not target.startswith(("https:", "source:")):
            found.append(target)
    return found


@given(MARKUP)
@settings(max_examples=400)
def test_neutralised_text_is_inactive(text):
    assert active(markdown.neutralise(text)) == []


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "a <img src=x onerror=alert(1)> b",
        "[x](javascript:alert(1))",
        "![x](java&#115;cript:alert(1))",
        "[x](<javascript:alert(1)>)",
        "[x](data:text/html,<b>)",
        "[x][y]\n\n[y]: javascript:alert(1)",
        "<javascript:alert(1)>",
        "    <script>indented</script>\n<b>",
        "- a\n  ```\n  <script>\n  ```\n\n<b>",
        "`a\n<script>` b",
        "``a `<b>`\n\n` <script>",
        "```\n<script>\n\n```x`\n<b>",
    ],
)
def test_active_content_is_neutralised(text):
    assert active(markdown.neutralise(text)) == []
    assert markdown.neutralise(text) != text


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("word{: .x }", "word&#123;: .x }"),
        ("# a { #i onload=x }", "# a &#123; #i onload=x }"),
        ("a {{ b style=x }", "a &#123;&#123; b style=x }"),
        ("a { HREF = x }", "a &#123; HREF = x }"),
    ],
)
def test_attribute_lists_are_broken(text, safe):
    assert markdown.neutralise(text) == safe


@pytest.mark.parametrize(
    "text",
    [
        "```html\n<b>\n```",
        "`<b>` and ``a ` b``",
        "a < b && c",
        "$x_{i=0}$",
        '[a](b.md#c) [d](https://x.org/a_(b)?c=1&d=2) [3x](source:e) [f](g.md "title")',
        "<https://example.org>",
        "[y]: https://example.org",
        "{{ record a.json b }}",
    ],
)
def test_sound_text_is_left_alone(text):
    assert markdown.neutralise(text) == text


def test_snippet_marks_are_broken():
    assert not markdown.neutralise('--8<-- "x"').startswith("--8")


@pytest.mark.parametrize(
    ("text", "count", "faulty"),
    [
        ("```\na\n```", 1, 0),
        ("~~~python\na\n~~~", 1, 0),
        ("```\na\n~~~\n```", 1, 0),
        ("````\n```\n````", 1, 0),
        ("    ```\n    a\n    ```", 1, 0),
        ("```\na", 1, 1),
        (" ```\na\n ```", 1, 1),
        ("> ```\n> a\n> ```", 1, 1),
        ("```a b c\nx\n```", 1, 1),
        ('```python title="x.py"\nx\n```', 1, 0),
        ("`a` and ``b``", 0, 0),
        ("```\na\n```\n```\nb\n```", 2, 0),
    ],
)
def test_fences(text, count, faulty):
    blocks = list(markdown.fences(text))
    assert len(blocks) == count
    assert sum(fault is not None for _, fault in blocks) == faulty


def test_code_spans():
    text = "`a` ``b ` c``\n\n`d` \\`e\\`\n\n`f` `g\nh`\n\n```\n`i`\n```\n"
    assert [span for _, span in markdown.code_spans(text)] == ["a", "b ` c"]


def test_directives_and_citations():
    text = "{{ evidence }} {{ record a.json b }} {{Bad}} [1x](source:k) ![1x](source:k)"
    assert [(d.name, d.arguments) for d in markdown.directives(text)] == [
        ("evidence", ()),
        ("record", ("a.json", "b")),
    ]
    assert [(c.label, c.key) for c in markdown.citations(text)] == [("1x", "k")]


@pytest.mark.parametrize(
    ("quoted", "label", "ok"),
    [
        ("up to 3.2x faster", "3.2x", True),
        ("up to 3.2x faster", "3.2\u00d7", True),
        ("up to 13.2x faster", "3.2x", False),
        ("up to 3.25x faster", "3.2x", False),
        ("226 / 255 us", "226 us", True),
        ("1,594 µs", "1594 us", True),
        ("1594 us", "1,594 us", True),
        ("62 TFLOP/s", "62 GB/s", False),
        ("one register more than 254", "254 registers", True),
        ("up to 3.2", "3.2 us", False),
        ("s=16 and t=4096", "16", True),
        ("s=16", "s=1", False),
        ("25 %", "25 percent", False),
        ("nothing", "words alone", True),
    ],
)
def test_citations_are_compared_with_the_quoted_words(quoted, label, ok):
    assert all(markdown.states(quoted, *figure) for figure in markdown.figures(label)) is ok


@pytest.mark.parametrize(
    ("heading", "anchor"),
    [
        ("When to apply", "when-to-apply"),
        ("`code-fence`", "code-fence"),
        ("The *best* [n]", "the-best-n"),
        ("Éa  b -- c", "ea-b-c"),
    ],
)
def test_slug(heading, anchor):
    assert markdown.slug(heading) == anchor


@given(MARKUP)
def test_a_cell_is_one_line_of_plain_words(text):
    shown = cell(text)
    assert "\n" not in shown
    assert not set("<>|[]{}*_`$\\") & set(shown)


def test_relative_targets():
    text = '[a](b.md) [c](https://x) [d](#e) [f](../g.md#h) [i](/j) [k](l.md "t") [m](source:n)'
    assert [t for *_, t in markdown.relative_targets(text)] == ["b.md", "../g.md#h", "l.md"]
