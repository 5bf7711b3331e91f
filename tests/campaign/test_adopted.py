"""Adopted files: run, compared, recorded; what breaks the contract is one sentence."""

from __future__ import annotations

import dataclasses
import re

import pytest

from mla_var3 import evidence
from mla_var3.campaign import adopted, contract
from mla_var3.campaign.running import Launched
from mla_var3.errors import HyperMlaError, InputError, PlanError, ToolchainError, UnknownNameError
from mla_var3.paths import repo_root
from mla_var3.workloads import Cost
from tests.campaign.files import ADD, CONTRACT, TORCH


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.setattr("mla_var3.paths.out_dir", lambda: tmp_path / "out")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "My-Add.py"
    path.write_text(ADD + CONTRACT)
    return path


def test_a_right_kernel_is_right_and_says_what_ran(file):
    found = adopted.adopt(file)
    assert (found.kind, found.name, found.told.sizes) == ("cutile", "my_add", {"n": 100})
    checked = found.check({"n": 70})
    assert (checked.wrong, checked.error) == ("", 0.0)
    (launch,) = checked.trace.launches
    assert (launch.kernel, launch.grid) == ("add_kernel", (3, 1, 1))
    assert checked.cost.bytes == 3 * 70 * 4
    assert checked.counted == "what the kernels executed"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("+ ct.load(y", "- ct.load(y", "relative error"),
        ("(ct.cdiv(x.shape[0], TILE),)", "(1,)", "relative error nan"),  # Nobody wrote the rest.
    ],
)
def test_a_wrong_kernel_is_wrong(file, old, new, said):
    file.write_text(file.read_text().replace(old, new))
    assert said in adopted.adopt(file).check({}).wrong


def test_a_record_is_read_again_until_the_file_changes(file, monkeypatch):
    found = adopted.adopt(file)
    monkeypatch.setattr(found.__class__, "archs", (), raising=False)
    checked = found.check({})
    made = adopted.records(adopted.Adopted(found.path, found.kind, ()), checked, print)
    # Without an arch nothing is compiled, and the record is of the CPU.
    assert [r.target for r in made] == [evidence.CPU]
    (path,) = adopted.write(made)
    assert path.is_relative_to(adopted.results())
    (again,) = adopted.require_records(file)
    assert again.outcome == made[0].outcome
    assert not evidence.is_stale(again) or again.kernel.sources
    file.write_text(file.read_text() + "\n# other\n")
    with pytest.raises(ToolchainError, match="has no record as it is"):
        adopted.require_records(file)


def test_plain_torch_is_checked_and_its_work_counted(tmp_path):
    path = tmp_path / "product.py"
    path.write_text(TORCH)
    checked = adopted.adopt(path).check({"m": 4})
    assert not checked.wrong
    assert checked.cost.flops == 2 * 4 * 16 * 4
    assert checked.counted.startswith("torch")
    given = adopted.work(checked)
    assert given.whole == checked.cost


def test_padding_that_ran_is_no_work_of_the_problem(file):
    """Kernels that multiply more than the reference asks for share its FLOPs; none is below 0."""
    checked = adopted.adopt(file).check({})
    ran = [Launched(name, (1,), (), flops) for name, flops in (("a", 3000), ("b", 1000))]
    checked.trace.launches[:] = ran
    given = adopted.work(dataclasses.replace(checked, cost=Cost(2000, 64)))
    assert [cost.flops for cost in given.stages.values()] == [1500, 500]
    assert given.whole == Cost(2000, 64)


def test_values_are_the_same_at_each_run(tmp_path):
    path = tmp_path / "product.py"
    path.write_text(TORCH)
    first, again = (adopted.adopt(path).check({}).error for _ in range(2))
    assert first == again


def _whole(path):
    found = adopted.adopt(path)
    assert found.told
    found.check({})


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("def inputs(device): ...", InputError, "defines no reference and no launch"),
        ("def inputs(:", InputError, "is not Python"),
        (TORCH.replace("(device, m=8", "(m=8"), InputError, "first parameter is not device"),
        (TORCH.replace("m=8, n=16", "m"), InputError, "size m has no default"),
        (TORCH.replace("m=8", "m=None"), InputError, "size m has no default"),
        (TORCH + "TOLERANCE = 3", InputError, "TOLERANCE that is no number between"),
        (TORCH + "CHECKS = 3", InputError, "CHECKS that is not a list"),
        (TORCH + "CHECKS = [{'q': 3}]", PlanError, "takes no size q (known: m, n)"),
        (TORCH + "import nothing_here", PlanError, "cannot be imported: ModuleNotFoundError"),
        (TORCH.replace("a @ b", "a @ a"), PlanError, "launch fails: RuntimeError"),
        (TORCH.replace("return a @ b", "return 3"), InputError, "gives int"),
        (TORCH.replace("return a @ b", "pass"), InputError, "gives NoneType"),
        (TORCH.replace("return a @ b", "return a, b"), PlanError, "launch gives out0, out1, and"),
        (TORCH.replace("return a @ b", "return a"), PlanError, "broken.py: output out0 has shape"),
        (TORCH + "import sys\nsys.exit(0)", PlanError, "cannot be imported: SystemExit: 0"),
        (TORCH + "reference = launch", PlanError, "reference launches the kernel"),
        (TORCH.replace("a.double() @ b.double()", "launch(a, b)"), PlanError, "reference launches"),
        (
            TORCH.replace("a.double() @ b.double()", "(a @ b).tolist()"),
            InputError,
            "reference must give tensors to compare, and gives list",
        ),
        (
            TORCH.replace("return a @ b", "raise Stops()") + "class Stops(BaseException): pass",
            PlanError,
            "launch fails: Stops: no word",
        ),
        (TORCH.replace("m=8", "m=0"), PlanError, "holds no number to compare"),
        (TORCH.replace("device=device", "device='meta'"), PlanError, "holds no number to compare"),
        (
            TORCH.replace("return a @ b", "return (a @ b) * 1j"),
            PlanError,
            "is torch.complex64, its reference torch.float64",
        ),
        (
            TORCH.replace("return {", "return [")
            .replace("}", "]")
            .replace('"a":', "")
            .replace('"b":', ""),
            PlanError,
            "inputs must give a mapping by name, and gives list",
        ),
        (TORCH.replace('"a":', "1:"), PlanError, "and gives a dict with 1"),
        (TORCH + "ARCH = 90", InputError, "ARCH that is not a text"),
        (
            TORCH.replace("import torch", "import torch\nimport cuda.tile"),
            PlanError,
            "launches no kernel",
        ),
    ],
)
def test_what_breaks_the_contract_is_one_sentence(tmp_path, text, error, said):
    path = tmp_path / "broken.py"
    path.write_text(text)
    with pytest.raises(HyperMlaError) as raised:
        _whole(path)
    assert isinstance(raised.value, error)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_outputs_written_in_place_are_named_by_the_reference(tmp_path):
    path = tmp_path / "inplace.py"
    path.write_text(
        "import torch\n"
        "def inputs(device): return {'x': torch.ones(3, device=device)}\n"
        "def reference(x): return {'x': x * 2}\n"
        "def launch(x): x.mul_(2)\n"
    )
    checked = adopted.adopt(path).check({})
    assert not checked.wrong
    assert checked.errors[0].name == "x"


def test_archs_are_those_of_the_kind(tmp_path):
    path = tmp_path / "product.py"
    path.write_text(TORCH)
    with pytest.raises(ToolchainError, match="compiles no kernel"):
        adopted.adopt(path, "sm_90")
    path.write_text(ADD + CONTRACT)
    with pytest.raises(UnknownNameError, match="unknown arch 'sm_1'"):
        adopted.adopt(path, "sm_1")
    path.write_text("import cutlass\n" + TORCH)
    assert contract.kind_of(path) == "cute"
    with pytest.raises(ToolchainError, match="one arch"):
        adopted.adopt(path, "sm_90,sm_100")


def test_the_kind_follows_imports_of_files_beside(tmp_path):
    (tmp_path / "theirs.py").write_text("import triton.language as tl\n")
    path = tmp_path / "mine.py"
    path.write_text("import theirs\n" + TORCH)
    assert contract.kind_of(path) == "triton"
    path.write_text("from mla_var3.campaign import definitions\nt = definitions('theirs.py')\n")
    assert contract.kind_of(path) == "triton"


@pytest.mark.parametrize(
    "name", ["adopted_matmul.py", "adopted_mla.py", "adopted_mla_cute.py", "adopted_sink.py"]
)
def test_the_example_is_right_at_each_of_its_sizes(name):
    found = adopted.adopt(repo_root() / "examples" / name)
    assert len(found.told.checks) == 2
    for sizes in found.told.checks:
        assert found.check(sizes).wrong == ""


def test_a_sink_that_the_kernel_leaves_out_is_found(tmp_path):
    path = tmp_path / "no_sink.py"
    text = (repo_root() / "examples/adopted_sink.py").read_text()
    assert "ct.full((ROWS, 1), 1.0, ct.float32)" in text
    path.write_text(text.replace("ct.full((ROWS, 1), 1.0,", "ct.full((ROWS, 1), 0.0,"))
    assert "relative error" in adopted.adopt(path).check({"b": 1, "h": 20, "t": 97}).wrong


#: What stands before the changed lines of ``reference``.
SCORES = "scores = q @ cache.transpose(1, 2) * (128 + ROTARY) ** -0.5\n"
#: By a change on the page: its constants, the same change in torch, and keys at which it matters.
CHANGED = {
    "softmax off by one": (
        "",
        "    weight = torch.softmax(torch.nn.functional.pad(scores, (0, 1)), dim=-1)[..., :-1]\n",
        2,
    ),
    "soft cap": (
        "CAP = 2.0\n",
        "    weight = torch.softmax(2 * torch.tanh(scores / 2), dim=-1)\n",
        97,
    ),
    "bias by distance (ALiBi)": (
        "SLOPE = 0.05\n",
        "    away = scores.shape[-1] - 1 - torch.arange(scores.shape[-1])\n"
        "    weight = torch.softmax(scores - 0.05 * away, dim=-1)\n",
        97,
    ),
    "sliding window": (
        "WINDOW = 40\n",
        "    weight = torch.zeros_like(scores)\n"
        "    weight[..., -40:] = torch.softmax(scores[..., -40:], dim=-1)\n",
        97,
    ),
}
#: The line that a change of the score stands before.
BEFORE = '        score = ct.where(place.reshape((1, KEYS)) < T, score, -float("inf"))\n'
ROWS = re.findall(
    r"^\| (.+?) \| (start|score) \| `(.+)` \|$",
    (repo_root() / "docs/change-the-formula.md").read_text(encoding="utf-8"),
    re.MULTILINE,
)


def test_every_line_of_the_page_on_changes_is_tried():
    assert {change for change, _, _ in ROWS} == CHANGED.keys()


@pytest.mark.parametrize(("change", "place", "line"), ROWS, ids=[row[0] for row in ROWS])
def test_a_line_of_the_page_on_changes_is_right_in_its_place(change, place, line, tmp_path):
    constants, torch_lines, keys = CHANGED[change]
    text = (repo_root() / "examples/adopted_mla.py").read_text(encoding="utf-8")
    kernel, middle, rest = text.partition("    weight = torch.softmax(")
    rest = rest.partition("\n")[2]
    before = {
        "start": "    acc = ct.zeros((ROWS, LATENT), ct.float32)\n",
        "score": "        score = ct.where(place",
    }[place]
    assert middle
    assert kernel.count(before) == 1
    indent = before[: len(before) - len(before.lstrip())]
    kernel = kernel.replace(before, f"{indent}{line}\n{before}")
    kernel = kernel.replace("\n\n\n@ct.kernel", f"\n{constants}\n\n@ct.kernel", 1)
    path = tmp_path / "changed.py"
    path.write_text(f"{kernel}    {SCORES}{torch_lines}{rest}", encoding="utf-8")
    sizes = {"b": 1, "h": 20, "t": keys}
    assert adopted.adopt(path).check(sizes).wrong == ""
    path.write_text(f"{kernel}    {middle.strip()}{text.partition(middle)[2]}", encoding="utf-8")
    assert "relative error" in adopted.adopt(path).check(sizes).wrong


@pytest.mark.parametrize("keys", [30, 97, 168])
def test_a_window_begins_its_loop_at_its_first_tile(keys, tmp_path):
    page = (repo_root() / "docs/change-the-formula.md").read_text(encoding="utf-8")
    (loop,) = re.findall(r"^    for step in range\(max\(T - WINDOW.*$", page, re.MULTILINE)
    (mask,) = [line for change, _, line in ROWS if change == "sliding window"]
    text = (repo_root() / "examples/adopted_mla.py").read_text(encoding="utf-8")
    kernel, _, rest = text.partition("    weight = torch.softmax(")
    kernel = kernel.replace("    for step in range(ct.cdiv(T, KEYS)):", loop)
    kernel = kernel.replace(BEFORE, f"        {mask}\n{BEFORE}")
    kernel = kernel.replace("\n\n\n@ct.kernel", "\nWINDOW = 40\n\n\n@ct.kernel", 1)
    lines = CHANGED["sliding window"][1]
    path = tmp_path / "window.py"
    rest = rest.partition("\n")[2]
    path.write_text(f"{kernel}    {SCORES}{lines}{rest}", encoding="utf-8")
    assert loop in kernel
    assert adopted.adopt(path).check({"b": 1, "h": 20, "t": keys}).wrong == ""


def test_the_reference_that_the_page_shows_is_the_example_s():
    page = (repo_root() / "docs/change-the-formula.md").read_text(encoding="utf-8")
    shown = page.partition("    ``` { .python }\n")[2].partition("    ```")[0].splitlines()
    there = (repo_root() / "examples/adopted_sink.py").read_text(encoding="utf-8")
    assert len(shown) == 2
    assert all(line in there for line in shown)
