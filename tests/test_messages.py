"""The pages on messages tell what the pinned compilers say: their examples are compiled."""

from __future__ import annotations

import re
import runpy
import subprocess
from pathlib import Path

import cuda.tile as ct
import pytest
import torch
from cuda.bindings import runtime
from cutlass.cute.runtime import from_dlpack

from mla_var3.app import run
from mla_var3.errors import EmulatorError
from mla_var3.interpreter.redirect import redirected
from mla_var3.paths import repo_root
from mla_var3.runtime import coverage
from mla_var3.static import tools
from mla_var3.workloads.base import RELATIVE, ROW_FACTOR

EXAMPLES = repo_root() / "examples" / "messages"
PAGES = repo_root() / "docs" / "messages"
FLAGS = {"c7510": ["-O0"], "c7602": ["--maxrregcount=24"]}


def codes(file: Path, tmp_path: Path) -> set[str]:
    """The codes of ptxas on a text of PTX."""
    ptxas = tools.locate("ptxas", "nvidia-cuda-nvcc").path
    done = subprocess.run(
        [ptxas, "-arch=sm_90a", *FLAGS.get(file.stem, []), file, "-o", tmp_path / "out.cubin"],
        capture_output=True, text=True, env=tools.environment(),
    )  # fmt: skip
    return set(re.findall(r"C7\d{3}", done.stdout + done.stderr))


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("c*.ptx")), ids=lambda file: file.stem)
def test_ptxas_says_what_the_page_explains(file: Path, tmp_path: Path) -> None:
    assert file.stem.upper() in codes(file, tmp_path)
    assert any(f"messages/{file.name})" in page.read_text() for page in PAGES.glob("*.md"))


def test_wgmma_wants_the_letter_in_the_text_and_in_the_flag(tmp_path: Path) -> None:
    text = (EXAMPLES / "target.ptx").read_text("utf-8")
    page = (PAGES / "wrong-target.md").read_text("utf-8")
    plain = refusal(text, "sm_90", tmp_path)
    for instruction, line in (("setmaxnreg.inc", 11), ("wgmma.fence", 12)):
        told = (
            f"line {line}; error   : Instruction '{instruction}' not supported on .target 'sm_90'"
        )
        assert told in plain
        assert told in refusal(text, "sm_90a", tmp_path)
        assert told in page
    lettered = text.replace(".target sm_90\n", ".target sm_90a\n")
    other = "PTX with .target 'sm_90a' cannot be compiled for architecture 'sm_90'"
    assert other in refusal(lettered, "sm_90", tmp_path)
    assert other in page
    assert not refusal(lettered, "sm_90a", tmp_path)
    newer = "line 12; error   : Instruction 'wgmma.fence' cannot be compiled for architecture "
    assert f"{newer}'sm_100a'" in refusal(lettered, "sm_100a", tmp_path)
    assert f"{newer}'sm_100a'" in page


def test_tcgen05_is_for_a_letter_of_sm_100_and_for_no_sm_120(tmp_path: Path) -> None:
    text = (EXAMPLES / "tcgen05.ptx").read_text("utf-8")
    page = (PAGES / "wrong-target.md").read_text("utf-8")
    told = "line 11; error   : Instruction 'tcgen05.alloc' not supported on .target "
    assert f"{told}'sm_120a'" in page
    for arch in ("sm_100", "sm_120", "sm_120a", "sm_120f", "sm_121a"):
        assert f"{told}'{arch}'" in refusal(
            text.replace(".target sm_120a", f".target {arch}"), arch, tmp_path
        )
    for arch in ("sm_100a", "sm_100f", "sm_103a"):
        assert not refusal(text.replace(".target sm_120a", f".target {arch}"), arch, tmp_path)
    family = text.replace(".target sm_120a", ".target sm_100f")
    assert not refusal(family, "sm_103", tmp_path)
    assert "different SM-family" in refusal(family, "sm_120a", tmp_path)


def test_static_shared_memory_has_the_limits_that_the_page_names(tmp_path: Path) -> None:
    text = (EXAMPLES / "shared_data.ptx").read_text("utf-8")
    page = (PAGES / "launch-refused.md").read_text("utf-8")
    told = "Entry function 'k' uses too much shared data "
    assert f"ptxas error   : {told}(0x10000 bytes, 0xc000 max)" in page
    limits = {"0xc000": ("sm_80", "sm_90", "sm_100", "sm_120"), "0x38c00": ("sm_90a", "sm_100a"),
              "0x18c00": ("sm_120a",)}  # fmt: skip
    for limit, targets in limits.items():
        row = next(line for line in page.splitlines() if line.startswith(f"| `{limit}`, "))
        assert f"{int(limit, 16):,}" in row
        for target in targets:
            assert f"`{target}`" in row
            lettered = text.replace(".target sm_90", f".target {target}")
            most = int(limit, 16)
            assert not refusal(sized(lettered, most), target, tmp_path)
            refused = refusal(sized(lettered, most + 4), target, tmp_path)
            assert f"{told}({most + 4:#x} bytes, {limit} max)" in refused


def sized(text: str, size: int) -> str:
    """``shared_data.ptx`` with as many bytes."""
    return text.replace("65536", str(size)).replace("65532", str(size - 4))


def test_capture_errors_are_told_in_cudas_words() -> None:
    page = (PAGES / "capture-fails.md").read_text("utf-8")
    rows = re.findall(r"^\| (9\d\d) `(\w+)` \| (.+?) \|", page, re.MULTILINE)
    assert len(rows) == 7
    for code, name, words in rows:
        error = runtime.cudaError_t(int(code))
        assert runtime.cudaGetErrorString(error)[1].decode() == words
        said = runtime.cudaGetErrorName(error)[1].decode()
        assert said.removeprefix("cudaError").removeprefix("StreamCapture") == name


@pytest.mark.parametrize(
    ("page", "code"),
    [("launch-refused", 720), ("illegal-memory-access", 710), ("illegal-instruction", 721),
     ("no-kernel-image", 100)],
)  # fmt: skip
def test_errors_of_the_runtime_are_told_in_cudas_words(page: str, code: int) -> None:
    text = (PAGES / f"{page}.md").read_text("utf-8")
    error = runtime.cudaError_t(code)
    said = runtime.cudaGetErrorString(error)[1].decode()
    assert said in text or said.capitalize() in text
    assert runtime.cudaGetErrorName(error)[1].decode() in text
    assert str(code) in text


def test_a_tensor_that_requires_grad_is_refused_in_the_words_of_the_page() -> None:
    page = (PAGES / "cute-dsl-errors.md").read_text("utf-8")
    with pytest.raises(BufferError) as refused:
        from_dlpack(torch.ones(4, requires_grad=True))
    assert f"BufferError: {refused.value} |" in page


def refusal(text: str, arch: str, tmp_path: Path) -> str:
    """What ptxas says of a text that it refuses; empty where it takes it."""
    file = tmp_path / "target.ptx"
    file.write_text(text)
    ptxas = tools.locate("ptxas", "nvidia-cuda-nvcc").path
    done = subprocess.run(
        [ptxas, f"-arch={arch}", file, "-o", tmp_path / "out.cubin"],
        capture_output=True, text=True, env=tools.environment(),
    )  # fmt: skip
    return done.stdout + done.stderr if done.returncode else ""


def test_ptxas_says_nothing_of_the_right_form(tmp_path: Path) -> None:
    assert not codes(EXAMPLES / "right.ptx", tmp_path)


@pytest.mark.parametrize(
    ("entry", "ignored"),
    [
        (".maxntid 384, 1, 1", True),
        (".reqntid 384, 1, 1", True),
        (".reqntid 384, 1, 1 .minnctapersm 1", False),
        (".maxnreg 168", False),
    ],
)
def test_what_makes_ptxas_heed_setmaxnreg(entry: str, ignored: bool, tmp_path: Path) -> None:
    text = (EXAMPLES / "c7508.ptx").read_text()
    params = "(.param .u64 out, .param .u64 tile)"
    file = tmp_path / "entry.ptx"
    file.write_text(text.replace(params, f"{params} {entry}"))
    assert entry in file.read_text()
    assert ("C7508" in codes(file, tmp_path)) == ignored


CUTE = runpy.run_path(str(EXAMPLES / "cute_errors.py"))


@pytest.mark.parametrize(
    ("code", "forms"),
    [*CUTE["CASES"].items(), *CUTE["MORE"], CUTE["IN_BRANCH"]],
    ids=lambda value: value if isinstance(value, str) else value[0].__name__,
)
def test_the_dsl_refuses_one_form_and_takes_the_other(code: str, forms: tuple[type, type]) -> None:
    refused, mended = forms
    assert f"[{code}]" in CUTE["said"](refused)
    assert CUTE["said"](mended) == ""
    page = (PAGES / "cute-dsl-errors.md").read_text()
    assert re.search(rf"^## {code}: .+ {{ #{code.lower()} }}$", page, re.MULTILINE)
    assert f"| [{code}](#{code.lower()}) |" in page


def test_a_name_that_only_a_branch_defines_is_no_name_after_it() -> None:
    kind, words, (refused, mended) = CUTE["UNDEFINED"]
    said = CUTE["said"](refused)
    assert kind in said
    assert words in said
    assert "must be defined before" in " ".join(said.split())
    assert CUTE["said"](mended) == ""
    page = (PAGES / "cute-dsl-errors.md").read_text()
    assert "{ #nameerror }" in page
    assert "| [NameError](#nameerror) |" in page


@pytest.mark.parametrize("words", CUTE["COPIES"])
def test_a_copy_wants_the_same_modes_on_both_sides(words: str) -> None:
    assert words in " ".join(CUTE["said"](CUTE["COPIES"][words]).split())
    assert CUTE["said"](CUTE["SameModes"]) == ""
    assert words in (PAGES / "cute-dsl-errors.md").read_text("utf-8")


TILE = runpy.run_path(str(EXAMPLES / "cutile_errors.py"), run_name="cases")


@pytest.mark.parametrize("words", TILE["CASES"])
def test_cutile_refuses_one_form_and_takes_the_other(words: str) -> None:
    refused, mended, arguments = TILE["CASES"][words]
    with redirected() as reports:
        assert words in TILE["said"](refused, arguments)
        assert TILE["said"](mended, arguments) == ""
    assert [report.diagnostics for report in reports] == [[]]
    assert f"\n## {words}\n" in (PAGES / "cutile-errors.md").read_text()


def test_two_tiles_give_the_scores_of_a_row_of_576() -> None:
    q, k, s = torch.randn(64, 576), torch.randn(64, 576), torch.empty(64, 64)
    with redirected():
        ct.launch(None, (1,), TILE["two_parts"], (q.bfloat16(), k.bfloat16(), s))
    expected = q.bfloat16().float() @ k.bfloat16().float().T
    torch.testing.assert_close(s, expected, rtol=1e-5, atol=1e-4)  # Sums of 576 in another order.


def test_the_index_leads_to_every_page() -> None:
    index = (PAGES / "index.md").read_text()
    for page in PAGES.glob("*.md"):
        assert page.name == "index.md" or f"]({page.name})" in index


def kinds_of(page: str, heading: str) -> set[str]:
    """The kinds that a page's table of findings lists."""
    text = (repo_root() / "docs" / page).read_text().partition(f"## {heading}")[2]
    rows = re.findall(r"^\| (`[^|]*) \|", text.partition("\n## ")[0], re.MULTILINE)
    return {kind for row in rows for kind in re.findall(r"`([a-z0-9-]+)`", row)}


@pytest.mark.parametrize(
    ("page", "heading", "explained"),
    [
        ("emulator.md", "What is reported", "emulator-reports.md"),
        ("interpreter.md", "Findings", "interpreter-findings.md"),
    ],
)
def test_every_finding_has_its_cause_check_and_remedy(
    page: str, heading: str, explained: str
) -> None:
    text = (PAGES / explained).read_text()
    sections = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    heads = [re.fullmatch(r"(.+?): .+ \{ #([a-z0-9-]+) \}", s.splitlines()[0]) for s in sections]
    assert all(heads)  # Each has words beside the kind, and keeps the anchor of the kind.
    kinds = [head[1].split(", ") for head in heads if head]
    assert [head[2] for head in heads if head] == ["-".join(names) for names in kinds]
    assert kinds_of(page, heading) == {kind for names in kinds for kind in names}
    for section in sections:
        assert [section.count(word) for word in ("**Cause.**", "**Check.**", "**Remedy.**")] == [
            1
        ] * 3


def test_the_errors_that_check_allows_are_those_of_the_page() -> None:
    text = (PAGES / "wrong-numbers.md").read_text("utf-8")
    told = re.search(r"4e-3 in bf16, (\S+) in fp16 and (\S+) in fp8", text)
    assert told is not None
    assert (float(told[1]), float(told[2])) == (RELATIVE["fp16"], RELATIVE["fp8"])
    assert RELATIVE["bf16"] == 4e-3
    assert ROW_FACTOR == 3
    assert "three times as much" in text


def test_every_gap_of_a_check_stands_on_its_page() -> None:
    text = (PAGES / "not-reached.md").read_text("utf-8")
    said = {missing for ways in coverage.WANTED.values() for missing in ways.values()}
    assert {phrase for phrase in said if f"`{phrase}`" not in text} == set()
    for kind in (*coverage.VARIED, "plan"):
        assert f"`{kind} ... was always`" in text


TOO_MUCH = """
import torch
from cutlass import Float32, cute
from cutlass.cute.runtime import from_dlpack
from cutlass.utils import SmemAllocator

@cute.kernel
def kernel(x):
    row = SmemAllocator().allocate_tensor(Float32, cute.make_layout(70000), 16)
    row[cute.arch.thread_idx()[0]] = x[0]

@cute.jit
def launch(x):
    kernel(x).launch(grid=(1, 1, 1), block=(32, 1, 1))

launch(from_dlpack(torch.zeros(32).cuda()))
"""


def test_the_dsl_says_how_much_shared_memory_is_too_much(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "too_much.py"
    script.write_text(TOO_MUCH)
    with pytest.raises(EmulatorError, match="280000 bytes of shared memory are asked for"):
        run.main([str(script)])
    line = (
        "launch shared memory exceeds current GPU arch sm_90a allowed. Allocated: 280000 bytes. "
        "Max: 232448 bytes."
    )
    assert line in capfd.readouterr().out
    assert line in (PAGES / "launch-refused.md").read_text("utf-8")
