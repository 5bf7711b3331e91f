"""Which product runs a script, and what is refused."""

from __future__ import annotations

import pytest

from mla_var3.app import conformance, run
from mla_var3.errors import HyperMlaError, UnknownNameError, UsageError


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
        (b"def (", "is not a Python script"),
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


def test_a_script_runs_as_it_is(tmp_path, capfd):
    script = tmp_path / "doubling.py"
    script.write_text(
        "import torch\n"
        "import cuda.tile as ct\n\n"
        "@ct.kernel\n"
        "def double(x, y, TILE: ct.Constant[int]):\n"
        "    i = ct.bid(0)\n"
        "    ct.store(y, (i,), 2 * ct.load(x, (i,), (TILE,)))\n\n"
        "x = torch.arange(64.0, device='cuda')\n"
        "y = torch.empty_like(x)\n"
        "ct.launch(torch.cuda.current_stream(), (2,), double, (x, y, 32))\n"
        "print('right' if bool((y == 2 * x).all()) else 'wrong')\n"
    )
    assert run.main([str(script)]) == 0
    assert "right" in capfd.readouterr().out
