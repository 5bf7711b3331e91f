"""Which product runs a script, and what is refused."""

from __future__ import annotations

import re

import pytest

from mla_var3.app import conformance, run
from mla_var3.errors import HyperMlaError, UnknownNameError, UsageError
from mla_var3.languages.cutile.facts import CutileFacts
from mla_var3.paths import repo_root
from tests.factories import static_facts

CUTE = repo_root() / "examples/cute_sync"


@pytest.mark.parametrize(
    ("text", "cute"),
    [
        ("import cuda.tile as ct\n", False),
        ("import cutlass.cute as cute\n", True),
        ("def f():\n    from cutlass import Float32\n", True),
        ("import cutlassy\n", False),
        ("", False),
    ],
)
def test_the_scripts_imports_decide(tmp_path, text, cute):
    script = tmp_path / "script.py"
    script.write_text(text)
    assert run.uses_cute(script) is cute


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"def (", "is not Python: "),
        (b"\xff\xfe\x00", "cannot be read"),
        (None, "cannot be"),
    ],
)
def test_what_is_not_a_script_is_one_sentence(tmp_path, content, said):
    script = tmp_path / "script.py"
    if content is not None:
        script.write_bytes(content)
    with pytest.raises(HyperMlaError, match=said):
        run.main([str(script)])


def test_a_script_must_be_named():
    with pytest.raises(UsageError, match=r"a script that ends in \.py must be given"):
        run.main(["--order=reverse"])


def test_an_unknown_suite_names_those_there_are():
    with pytest.raises(UnknownNameError, match="cutile-python, tilegym, cutlass-examples"):
        conformance.main(["pytorch"])


DOUBLE = """import torch
import cuda.tile as ct

@ct.kernel
def double(x, y, TILE: ct.Constant[int]):
    i = ct.bid(0)
    ct.store(y, (i,), 2 * ct.load(x, (i,), (TILE,)))

x = torch.arange(64.0, device='cuda')
y = torch.empty_like(x)
for tile in (32, 32, 16):
    ct.launch(torch.cuda.current_stream(), (64 // tile,), double, (x, y, tile))
print('right' if bool((y == 2 * x).all()) else 'wrong')
"""
FACTS = r"\d+ registers, no spills, [\d,]+ bytes of shared memory, MMA path none"


@pytest.fixture
def doubling(tmp_path):
    script = tmp_path / "doubling.py"
    script.write_text(DOUBLE)
    return script


def test_a_script_runs_as_it_is(doubling, capfd):
    assert run.main([str(doubling)]) == 0
    said = capfd.readouterr().out
    assert "right" in said
    assert "registers" not in said


@pytest.mark.slow
@pytest.mark.parametrize("option", [["--arch=sm_120,sm_90"], ["--arch", "sm_120,sm_90"]])
def test_each_specialization_that_ran_is_compiled_for_each_arch(doubling, capfd, option):
    assert run.main([*option, "--order=reverse", str(doubling)]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert "right" in lines
    where = [f"double({tile}) on {arch}" for tile in (32, 16) for arch in ("sm_120", "sm_90")]
    assert [text.partition(": ")[0] for text in lines[-4:]] == where
    assert all(re.fullmatch(FACTS, text.partition(": ")[2]) for text in lines[-4:])


@pytest.mark.slow
def test_the_page_shows_the_line_that_its_command_prints(capfd):
    page = (repo_root() / "docs/interpreter.md").read_text(encoding="utf-8")
    found = re.search(r"\$ nox -s run -- (\S+) (\S+)\n```\n\n.*\n\n```text\n(.+)\n```", page)
    assert found is not None
    arch, script, shown = found.groups()
    assert run.main([arch, str(repo_root() / script)]) == 0
    assert capfd.readouterr().out.splitlines()[-1] == shown


@pytest.mark.parametrize("options", [["--arch="], ["--arch=sm_120,"], ["--arch"]])
def test_an_arch_without_a_name_ends_before_the_script_runs(doubling, capfd, options):
    with pytest.raises(UsageError, match="--arch must name archs, as in --arch=sm_120"):
        run.main([*options, str(doubling)])
    assert capfd.readouterr().out == ""


def test_a_script_without_kernels_says_that_none_was_compiled(tmp_path, capfd):
    script = tmp_path / "idle.py"
    script.write_text("import cuda.tile\n")
    assert run.main(["--arch=sm_120", str(script)]) == 0
    assert "no kernel was launched, so none was compiled" in capfd.readouterr().out


def test_an_unknown_arch_ends_before_the_script_runs(doubling, capfd):
    with pytest.raises(UnknownNameError, match="sm_42"):
        run.main(["--arch=sm_42", str(doubling)])
    assert "right" not in capfd.readouterr().out


@pytest.mark.parametrize("count", [0, 1218])
def test_a_line_says_whether_a_kernel_spills(count):
    facts = static_facts("sm_120", kernel="mine", spill_loads=count)
    assert ("1,218 spill instructions" if count else "no spills") in run.line(facts)
    assert run.line(facts).startswith("mine on sm_120: ")


def test_a_compiler_that_refuses_says_why():
    facts = CutileFacts(kernel="mine", arch="sm_90", error="kernel.py:3: tiles are too large")
    assert run.line(facts, [64]) == "mine(64) on sm_90: kernel.py:3: tiles are too large"


def test_a_cute_script_runs_as_compiled_for_the_arch(capfd):
    assert run.main(["--arch=sm_120", str(CUTE / "pair.py")]) == 0
    assert re.search(rf"^swap on sm_120: {FACTS}$", capfd.readouterr().out, re.MULTILINE)


@pytest.mark.parametrize(
    ("archs", "said"),
    [("sm_120", "uses wgmma .* needs sm_90 and not sm_120"), ("sm_90,sm_120", "for one arch")],
)
def test_a_cute_script_that_the_arch_does_not_allow_is_one_sentence(archs, said):
    with pytest.raises(UsageError, match=said):
        run.main([f"--arch={archs}", str(CUTE / "product.py")])
