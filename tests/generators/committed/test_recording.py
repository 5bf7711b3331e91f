"""The README's recording says what the first command says of the committed records."""

from __future__ import annotations

import html
import re
import xml.etree.ElementTree as ET

import pytest

from generators.committed import recording
from mla_var3 import evidence
from mla_var3.app.launcher import PIPE_WIDTH, Advice
from mla_var3.errors import KnowledgeError
from mla_var3.profiling import summary
from mla_var3.runtime import registry
from tests.generators.checking import ROOT

SVG = "{http://www.w3.org/2000/svg}"
AGAIN = "make it again: python -m generators.committed.recording"


@pytest.fixture(scope="module")
def lines():
    root = ET.parse(ROOT / recording.PICTURE).getroot()
    return [node.text or "" for node in root.iter(f"{SVG}text")]


@pytest.fixture(scope="module")
def shown(lines):
    """The records that the recorded run wrote, as they are committed."""
    named = []
    for line in lines:
        if line.startswith("record results/"):
            before, archs, after = re.fullmatch(
                r"record (.*/)\{?([\w,]+)\}?(/cutile/.*)", line
            ).groups()
            named += [f"{before}{arch}{after}" for arch in archs.split(",")]
    assert len(named) == len(set(named)) == 3
    found = [record for name in named for record in evidence.records_of(ROOT / name)]
    mixes = dict(re.findall(r"(sm_\d+) +n=(\d+)", "\n".join(lines)))
    asked = registry.find("mla_var6_plus", "v4").plan_class()().problem()
    return [
        record
        for record in found
        if record.kernel.version == "v4"
        and record.problem == {**asked, "n": int(mixes[record.target.removeprefix("static/")])}
    ]


def words(text: str) -> list[str]:
    plain = html.unescape(text).replace("*", "").replace("\\", "")
    return [word.rstrip(".") for word in re.findall(r"[\w.+-]+", plain)]


def test_it_starts_with_the_command_of_the_readme(lines):
    assert lines[0] == f"$ {recording.TYPED}"
    readme = (ROOT / "README.md").read_text()
    assert recording.TYPED in readme
    assert recording.PICTURE in readme


@pytest.mark.slow
def test_it_says_what_the_command_says_of_these_records(lines, shown):
    recorded = set(words("\n".join(lines)))
    version = registry.find("mla_var6_plus", "v4")
    advice = Advice(version, version.plan_class()())
    advice.steps(shown)
    said = summary.render(shown, advice.brief, advice.known(shown))
    for line in said.splitlines():
        missing = [word for word in words(line) if word not in recorded and word.strip("-")]
        assert not missing, f"{AGAIN}: {line}"


def test_it_is_one_screen_with_steps_and_the_report(lines):
    text = "\n".join(lines)
    assert len([line for line in lines if line.strip()]) < 35
    assert max(map(len, lines)) <= PIPE_WIDTH
    assert "Try next" in text
    assert "wrote out/profiles/static/" in text
    assert str(ROOT) not in text


def test_a_drawing_keeps_every_character():
    output = "# a <b> & c: right, by 1e-3\n  two  spaces\n"
    root = ET.fromstring(recording.picture(output))
    assert [node.text for node in root.iter(f"{SVG}text")][1:] == output.splitlines()
    assert root.attrib["aria-label"].endswith("right, by 1e-3")


def test_a_command_that_fails_is_one_sentence(tmp_path, monkeypatch):
    (tmp_path / "results").mkdir()
    monkeypatch.setattr(recording, "RUN", ("-c", "raise SystemExit(3)"))
    with pytest.raises(KnowledgeError, match="ends with 3"):
        recording.printed(tmp_path)
