"""Every Python snippet of the knowledge and of the docs runs, in the setup that it declares.

cuTile snippets run in the interpreter, CuTe ones in the emulator, compiles by the toolchain.
"""

from __future__ import annotations

import importlib.util
import re
import runpy
import subprocess
import sys
from dataclasses import dataclass

import pytest
import torch

from mla_var3.emulator import Options
from mla_var3.emulator.script import run_script
from mla_var3.paths import repo_root
from mla_var3.serving import operators
from tests.knowledge.setups import Setup, cutile, filled

HAS_CUTE = importlib.util.find_spec("cutlass") is not None
if HAS_CUTE:
    from tests.knowledge.setups import cute

    SETUPS = {**cutile.SETUPS, **cute.SETUPS}
else:
    SETUPS = cutile.SETUPS


@dataclass(frozen=True)
class Snippet:
    """A Python block of a page.

    Attributes:
        page: The page's name.
        number: Its place among the blocks of the page.
        line: Line of the page.
        text: The block.
    """

    page: str
    number: int
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def snippets() -> list[Snippet]:
    root = repo_root()
    found = []
    for path in sorted([*root.glob("knowledge/**/*.md"), *root.glob("docs/**/*.md")]):
        text = path.read_text(encoding="utf-8")
        for number, match in enumerate(re.finditer(r"^```python\n(.*?)^```", text, re.M | re.S)):
            line = text.count("\n", 0, match.start()) + 1
            found.append(Snippet(path.stem, number, line, match[1]))
    return found


SNIPPETS = snippets()


@pytest.mark.skipif(not HAS_CUTE, reason="needs the CuTe DSL (the cute extra), not installed")
def test_each_snippet_has_a_setup_and_each_setup_a_snippet():
    counts = {s.page: s.number + 1 for s in SNIPPETS}
    assert {page: len(setups) for page, setups in SETUPS.items()} == counts


@pytest.mark.parametrize("snippet", [s for s in SNIPPETS if s.page in SETUPS], ids=str)
def test_a_snippet_runs(snippet, tmp_path, monkeypatch):
    setup = SETUPS[snippet.page][snippet.number]
    if setup.needs_gpu and not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    program = tmp_path / "snippet.py"
    program.write_text(setup.program(snippet.text), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUTE_DSL_ARCH", "sm_90a")  # Snippets set it; it goes with the test.
    for name in ("launch", "sms_of"):  # Setups stand in for these, also where a snippet fails.
        monkeypatch.setattr(operators, name, getattr(operators, name))
    if setup.emulated:
        done = run_script(program, (), Options(), "sm_90a")
        assert (done.ended.error, done.diagnostics) == (None, [])
    elif setup.compiled:
        run = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False)
        assert (run.returncode, run.stderr) == (0, "")
    else:
        assert runpy.run_path(str(program), run_name="__main__")


#: A block below a line that links the file of its lines and ends with a colon.
QUOTED = re.compile(
    r"\]\((?:\.\./)+([^)\n]+\.py)\)[^\n]*:\n\n``` \{ \.python \}\n(.*?)^```", re.M | re.S
)


def test_a_snippet_that_names_a_file_is_made_of_its_lines():
    root, seen = repo_root(), set()
    for page in sorted(root.glob("docs/**/*.md")):
        for match in QUOTED.finditer(page.read_text(encoding="utf-8")):
            file = (root / match[1]).read_text(encoding="utf-8")
            there = {line.strip() for line in file.splitlines()}
            assert {line.strip() for line in match[2].splitlines()} <= there, (page.name, match[1])
            seen.add(match[1])
    assert {"examples/first/add_cute.py", "kernels/cute_python/kit/softmax.py"} <= seen
    assert {"examples/messages/cute_errors.py", "examples/lessons/lesson4.py"} <= seen


SETUP = Setup("for i in range(2):\n    # snippet 1\n    # snippet 3\n")


def test_lines_take_the_places_of_their_marks():
    program = SETUP.program("a = i\n\nif a:\n    ...  # what then\n")
    assert program == "for i in range(2):\n    a = i\n    if a:\n"


@pytest.mark.parametrize("last", ["b = a", "f(\n    a)"])
def test_a_line_that_would_not_run_is_an_error(last):
    with pytest.raises(ValueError, match=r"lines .* of the snippet are nowhere"):
        SETUP.program(f"a = 1\n{last}\nc = 1\nd = 2\n")


def test_places_are_filled_in_order():
    text = "f(..., a[...])  # ... and so on\nfor i in a:\n    ...\n"
    assert filled(text, ("1", "2", "b()\nc()")) == [
        "f(1, a[2])  # ... and so on",
        "for i in a:",
        "    b()\n    c()",
    ]
    with pytest.raises(ValueError, match="4 fills for 3 places"):
        filled(text, ("",) * 4)


def test_a_piece_that_is_made_smaller_must_be_there():
    with pytest.raises(ValueError, match="the snippet has no '\\(1, 2\\)'"):
        Setup("# snippet\n", less=(("(1, 2)", "(1,)"),)).program("a = (1, 3)\n")
