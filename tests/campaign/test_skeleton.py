"""Drafts: what one run of a file tells, and that they work once their reference stands."""

from __future__ import annotations

import pytest
import torch

from mla_var3.app import adopt
from mla_var3.campaign import adopted, scripts, skeleton
from mla_var3.errors import InputError, UsageError
from tests.campaign.files import ADD, CONTRACT, DEMO


@pytest.fixture
def demo(tmp_path):
    path = tmp_path / "01-demo.py"
    path.write_text(DEMO)
    return path


def test_a_draft_needs_its_reference_alone(demo, capsys):
    assert adopt.main([str(demo)]) == 0
    target = demo.with_name("k_01_demo_adopted.py")
    said = capsys.readouterr().out
    assert "kernels: add_kernel[2, 1, 1]" in said
    text = target.read_text()
    assert len([line for line in text.splitlines() if line.strip()]) <= 16
    assert '"x": torch.randn(64, device=device)' in text
    target.write_text(text.replace('raise NotImplementedError("add by plain torch: what it '
                                   'returns")', "return x + y"))  # fmt: skip
    assert adopt.main([str(target)]) == 0
    said = capsys.readouterr().out
    assert "right, error 0.0e+00" in said
    assert "largest difference" not in said  # The demonstration did not run again.
    with pytest.raises(UsageError, match="exists"):
        adopt.main([f"--to={target}", str(demo)])


def test_a_script_that_compares_by_itself_is_complete(tmp_path, capsys):
    script = tmp_path / "script.py"
    body = "def main(n):\n    x = torch.randn(n, device='cuda')\n"
    script.write_text(
        ADD + body + "    torch.testing.assert_close(add(x, x), 2 * x, atol=0.05, rtol=0)\n"
        "import sys\nmain(int(sys.argv[1]))\n"
    )
    shown = skeleton.show(script, ["40"], ["sm_90"])
    shown.call = None  # As where no function takes plain tensors.
    target = tmp_path / "adopted.py"
    target.write_text(skeleton.text(script, target, shown, ["40"], ""))
    assert 'script("script.py", "40")' in target.read_text()
    assert "TOLERANCE = 0.05" in target.read_text()
    checked = adopted.adopt(target).check({})
    assert (checked.wrong, checked.errors[0].name) == ("", "compared0")
    assert [one.kernel for one in checked.trace.launches] == ["add_kernel"]


def test_what_shows_nothing_is_refused_with_the_reason(tmp_path):
    for text, said in (("x = 1", "calls no function"), ("raise ValueError('no')", "ValueError")):
        path = tmp_path / "nothing.py"
        path.write_text(text)
        with pytest.raises(InputError, match=said):
            adopt.main([str(path)])
        assert not path.with_name("nothing_adopted.py").exists()


def test_definitions_are_what_functions_use(demo):
    kept = [node for node in scripts.defining(demo).body if hasattr(node, "targets")]
    assert [node.targets[0].id for node in kept] == ["TILE", "Size"]


@pytest.mark.parametrize(
    ("value", "made"),
    [
        (torch.zeros(2, 3), "torch.randn(2, 3, device=device)"),
        (torch.zeros(4, dtype=torch.bfloat16), "torch.randn(4, device=device).to(torch.bfloat16)"),
        (torch.tensor([2, 5]), "torch.randint(2, 6, (2,), dtype=torch.int64, device=device)"),
        (torch.tensor([True]), "torch.rand(1, device=device) < 0.5"),
        (torch.float16, "torch.float16"),
        (3, "3"),
        ("x", "'x'"),
        (object(), None),
    ],
)
def test_expressions_make_values_alike(value, made):
    assert skeleton.expression(value) == made
    if isinstance(value, torch.Tensor):
        other = eval(made, {"torch": torch, "device": "cpu"})
        assert (other.shape, other.dtype) == (value.shape, value.dtype)


def test_a_name_that_is_nothing_is_one_sentence(tmp_path):
    with pytest.raises(UsageError, match="did you mean hopper-dense-gemm"):
        adopt.main(["hopper-dense-gem"])
    with pytest.raises(UsageError, match="unknown flag --tto"):
        adopt.main(["--tto=x", str(tmp_path / "x.py")])
    with pytest.raises(UsageError, match="must be given"):
        adopt.main([])
    path = tmp_path / "whole.py"
    path.write_text(ADD + CONTRACT)
    assert adopt.main([str(path)]) == 0


def test_a_triton_file_without_triton_is_told_how_to_install_it(tmp_path):
    path = tmp_path / "added.py"
    path.write_text("import triton\n")
    shown = skeleton.Shown("triton", error="ModuleNotFoundError: No module named 'triton'")
    with pytest.raises(InputError, match=r"pip install triton"):
        skeleton.text(path, tmp_path / "draft.py", shown, [], "")
