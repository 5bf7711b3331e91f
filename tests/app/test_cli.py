from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from mla_var3 import front
from mla_var3.app import cli, launcher
from mla_var3.app.cli import split_names
from mla_var3.app.sessions import COMMANDS
from mla_var3.errors import EXIT_BAD_INPUT, EXIT_INTERRUPTED
from mla_var3.runtime import registry

ROOT = Path(__file__).resolve().parents[2]


def exits(argv: list[str] | None = None, **kwargs) -> int:
    with pytest.raises(SystemExit) as exit_:
        front.run("mla_var3.app.cli:main", argv=argv, **kwargs)
    return exit_.value.code


@pytest.fixture
def ran(monkeypatch):
    """What reaches the launcher."""
    seen = []
    monkeypatch.setattr(launcher, "run", lambda *args: seen.append(args) or 0)
    return seen


@pytest.mark.parametrize(
    ("argv", "design", "expected"),
    [
        ([], None, (None, None, [])),
        (["d"], None, ("d", None, [])),
        (["d", "v1", "--b=1"], None, ("d", "v1", ["--b=1"])),
        (["d", "--b=1"], None, ("d", None, ["--b=1"])),
        (["--help"], None, (None, None, ["--help"])),
        (["v1", "--b=1"], "d", ("d", "v1", ["--b=1"])),
        (["--b=1"], "d", ("d", None, ["--b=1"])),
        ([], "d", ("d", None, [])),
    ],
)
def test_names_come_before_flags(argv, design, expected):
    assert split_names(argv, design) == expected


class TestMain:
    def test_a_version_and_its_plan_reach_the_launcher(self, ran):
        assert exits(["flash-mla", "v1", "--b=3", "--prof_type=static"]) == 0
        ((version, plan, options),) = ran
        assert version == registry.find("flash_mla", "v1")
        assert (type(plan), plan.b) == (version.plan_class(), 3)
        assert options.prof_type == "static"

    def test_the_design_may_be_fixed_and_the_base_is_the_default(self, ran):
        assert exits(["--b=3"], design="flash_mla", language="cutile-dsl") == 0
        assert ran[0][0] == registry.find("flash_mla", "v0")

    def test_arguments_are_the_processs_by_default(self, ran, monkeypatch):
        monkeypatch.setattr(sys, "argv", ["kernel", "flash_mla"])
        assert exits() == 0
        assert len(ran) == 1

    @pytest.mark.parametrize("argv", [["--help"], ["-h"], ["--help", "flash_mla"]])
    def test_help_without_a_design_lists_all(self, argv, ran, capsys):
        assert exits(argv) == 0
        out = capsys.readouterr().out
        for design, versions in registry.designs().items():
            assert re.search(
                rf"{re.escape(design)} +{' '.join(v.version for v in versions)}\n", out
            )
        assert not ran

    @pytest.mark.parametrize(
        ("argv", "said"),
        [
            (["flash_mlaa"], "unknown design 'flash_mlaa' (known: "),
            (["flash_mlaa"], "did you mean 'flash_mla'?"),
            (["flash_mla", "v99"], "unknown version of flash_mla 'v99' (known: v0, v1, v2, v3)"),
            (["flash_mla", "v22"], "did you mean 'v2'?"),
            (["flash_mla", "--b=0"], "b=0 is below 1"),
            (["flash_mla", "--tile_m=1000"], "tile_m=1000 is not a power of two"),
            (["flash_mla", "--bogus"], "unknown flag --bogus; see python -m mla_var3.kernel "),
            ([], "a design must come first: "),
            (["--b=1", "flash_mla"], "a design must come first: "),
            (["flash_mla", "--b=1", "v1"], "'v1' is one argument too many"),
        ],
    )
    def test_bad_input_is_one_sentence_and_2(self, argv, said, ran, capsys):
        assert exits(argv) == EXIT_BAD_INPUT
        err = capsys.readouterr().err
        assert err.startswith("error: ")
        assert said in err
        assert err.count("\n") == 1
        assert not ran

    @pytest.mark.parametrize("flag", [["--lang=cute-dsl"], ["--lang", "cute-dsl"]])
    def test_the_language_may_be_chosen(self, flag, ran, monkeypatch):
        asked = []
        find = registry.find

        def found(design, version, language):
            asked.append(language)
            return find(design.partition("@")[0], version)

        monkeypatch.setattr(cli.registry, "find", found)
        assert exits(["flash_mla", *flag]) == 0
        assert exits(["flash_mla@cute-dsl"]) == 0
        assert asked == ["cute-dsl", "cute-dsl"]

    def test_a_language_that_the_design_lacks_is_refused(self, ran, capsys):
        assert exits(["torch_sdpa", "--lang=cutile-dsl"]) == EXIT_BAD_INPUT
        assert "unknown language of torch_sdpa 'cutile-dsl' (known: library)" in (
            capsys.readouterr().err
        )

    def test_which_of_several_languages_was_taken_is_said(self, ran, monkeypatch, capsys):
        monkeypatch.setattr(registry, "other_languages", lambda _: ["cute-dsl"])
        assert exits(["flash_mla"]) == 0
        assert capsys.readouterr().out == (
            "· flash_mla exists in cutile-dsl, cute-dsl: taking cutile-dsl "
            "(--lang=cute-dsl takes another)\n"
        )
        assert exits(["flash_mla@cutile-dsl"]) == 0
        assert exits(["flash_mla", "--lang=cutile-dsl"]) == 0
        assert capsys.readouterr().out == ""

    def test_an_interrupt_is_130(self, monkeypatch, capsys):
        def interrupted(*_args):
            raise KeyboardInterrupt

        monkeypatch.setattr(launcher, "run", interrupted)
        assert exits(["flash_mla"]) == EXIT_INTERRUPTED

    def test_listing_has_a_line_a_design(self):
        assert len(cli.listing().splitlines()) == len(registry.designs())


#: What is printed where nobody says which of a design's languages is meant.
TAKEN = (
    "· flash_mla exists in cutile-dsl, cute-dsl: taking cutile-dsl "
    "(--lang=cute-dsl takes another)\n"
)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("form", "note"),
    [
        ("mla_var3.kernel flash_mla", TAKEN),
        ("mla_var3.kernel flash_mla@cutile-dsl", ""),
        ("mla_var3.kernel flash_mla@cute-dsl", ""),
        ("mla_var3.kernel.cutile.mla.flash_mla", ""),
        ("mla_var3.kernel.cute_python.mla.flash_mla", ""),
    ],
)
def test_module_forms_refuse_bad_input_without_a_traceback(form, note):
    done = subprocess.run(
        [sys.executable, "-m", *form.split(), "v1", "--t=-1"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (2, note, "error: t=-1 is below 1\n")


def test_every_design_has_its_own_form():
    for versions in registry.designs().values():
        source = (versions[0].path.parents[1] / "__main__.py").read_text()
        version = versions[0]
        assert f'main", design="{version.design}", language="{version.language}")' in source


@pytest.fixture(scope="module")
def noxfile():
    pytest.importorskip("nox", reason="nox, which runs the sessions, is not installed here")
    spec = importlib.util.spec_from_file_location("noxfile", ROOT / "noxfile.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", COMMANDS)
def test_the_nox_form_runs_the_same_module(name, noxfile, monkeypatch):
    monkeypatch.setattr(noxfile, "install", lambda *_: None)
    ran = []

    class Child:
        def __init__(self, command, **_):
            ran.append(command)

        def wait(self):
            return 0

    monkeypatch.setattr(noxfile.subprocess, "Popen", Child)
    session = noxfile.nox.registry.get()[name]
    session.func(SimpleNamespace(posargs=["flash_mla", "v1", "--b=3"]))
    (command,), wanted = ran, COMMANDS[name]
    assert command[1:] == ["-m", wanted.module, *wanted.arguments, "flash_mla", "v1", "--b=3"]
    assert session.__doc__ == wanted.help
