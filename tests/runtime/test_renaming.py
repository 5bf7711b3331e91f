"""Names of a version in another version, in each of their spellings."""

from __future__ import annotations

from pathlib import Path

from hypothesis import assume, given
from hypothesis import strategies as st

from mla_var3.runtime.renaming import Names, Rewriter

numbers = st.integers(min_value=1, max_value=120).map(lambda number: f"v{number}")
designs = st.lists(
    st.from_regex(r"[a-z]{2,6}[0-9]?", fullmatch=True), min_size=1, max_size=3, unique=True
).map("_".join)
endings = st.sampled_from(["", "_reduce", "_x1"])


def names_of(design: str, source: str, target: str, *others: str) -> Names:
    root = Path("/k")
    return Names(root, root / "lang" / "mla" / design, source, target, frozenset(others))


def spellings(design: str, version: str, ending: str) -> tuple[str, str, str]:
    """Snake, camel and upper form of a name that carries a version; v0 is not spelled."""
    tag = "" if version == "v0" else version
    snake = "_".join(filter(None, [design, tag])) + ending
    camel = "".join(word.capitalize() for word in design.split("_")) + tag.upper() + "Plan"
    return snake, camel, snake.upper()


@given(designs, st.just("v0") | numbers, numbers, endings)
def test_names_of_the_source_become_those_of_the_target(
    design: str, source: str, target: str, ending: str
) -> None:
    assume(source != target)
    names = names_of(design, source, target)
    for old, new in zip(
        spellings(design, source, ending), spellings(design, target, ending), strict=True
    ):
        assert names.rename(old) == new
        assert names.rename(f"_{old}") == f"_{new}"
        assert names.rename(new) == new
        assert names.rename(f"x{old}") == f"x{old}"


@given(designs, st.just("v0") | numbers, numbers, numbers, endings)
def test_names_of_other_versions_and_designs_stay(
    design: str, source: str, target: str, third: str, ending: str
) -> None:
    assume(third != source)
    longer = f"{design}_split"
    names = names_of(design, source, target, longer)
    for name in (*spellings(design, third, ending), *spellings(longer, source, ending)):
        assert names.rename(name) == name


@given(st.text(alphabet="abv1._/ '\"", max_size=40), numbers, numbers)
def test_text_without_the_design_changes_only_its_version(
    text: str, source: str, target: str
) -> None:
    rewriter = Rewriter(names_of("toy_mla", source, target), {})
    if source not in text:
        assert rewriter.text(text, prose=True) == text
        assert rewriter.text(text, prose=False) == text
