from __future__ import annotations

import pytest

from mla_var3.errors import KnowledgeError
from mla_var3.knowledge.__main__ import main
from mla_var3.knowledge.references import asking
from mla_var3.paths import repo_root

ROOT = repo_root()


@pytest.mark.parametrize(
    ("question", "first"),
    [
        ("ct.load", "ct.load"),
        ("load", "ct.load"),
        ("a lock is taken", "ct.atomic_cas"),
        ("running maximum", "ct.scan"),
        ("padding of a tile", "ct.PaddingMode"),
        ("C7514", "Serialized wgmma: C7510 to C7519: C7514"),
        ("illegal memory access", "Illegal memory access"),
    ],
)
def test_a_question_has_its_answer_among_the_first_three(question: str, first: str) -> None:
    found = asking.answers(question, ROOT, 3)
    assert any(answer.title.startswith(first) for answer in found), [a.title for a in found]


@pytest.mark.parametrize("question", ["ct.mma", "C7514"])
def test_an_answer_names_the_line_that_says_so(question: str) -> None:
    (answer,) = asking.answers(question, ROOT, 1)
    file, _, line = answer.where.partition(":")
    assert question.removeprefix("ct.") in (ROOT / file).read_text().splitlines()[int(line) - 1]
    if answer.also:
        file, _, line = answer.also.partition(":")
        assert "@ct.kernel" in (ROOT / file).read_text().splitlines()[int(line) - 1]


def test_the_converted_documents_answer_where_they_are(tmp_path):
    file = tmp_path / asking.CONVERTED / "cpp" / "layout.md"
    file.parent.mkdir(parents=True)
    file.write_text("---\nx: y\n---\n\n# Layout\n\nText.\n\n## Zeppelin stride\n\nA stride.\n")
    (answer,) = asking.answers("zeppelins", tmp_path, 1)
    assert answer.where == f"{asking.CONVERTED}/cpp/layout.md:9"
    assert answer.title == "Layout: Zeppelin stride"
    assert answer.says == "A stride."


def test_words_of_no_reference(capsys):
    assert main(["api", "xyzzy"]) == 0
    assert "no reference holds" in capsys.readouterr().out
    with pytest.raises(KnowledgeError, match="no word"):
        asking.answers("the of", ROOT)


def test_names_are_split_where_their_words_begin():
    assert asking.words("PipelineTmaStore") == asking.words("pipeline tma store")
    assert "ct" in asking.words("ct.load_advanced_indexing")
