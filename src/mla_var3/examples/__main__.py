"""Command line ``python -m mla_var3.examples``: fetch, index and show CUTLASS examples."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.console import Console
from rich.markdown import Markdown

from mla_var3 import arguments, front
from mla_var3.arguments import named
from mla_var3.errors import KnowledgeError, UsageError
from mla_var3.examples import pin, store
from mla_var3.examples.model import Example
from mla_var3.paths import repo_root

if TYPE_CHECKING:
    from mla_var3.examples.learning import Learning, Step

#: Columns of the reading when the output is not a terminal.
PIPE_WIDTH = 100


def fetch() -> int:
    """Bring the pinned examples and documentation into third_party/cutlass."""
    from mla_var3.examples.fetch import fetch as bring

    tree = bring(repo_root())
    files = sum(path.is_file() for path in tree.root.rglob("*"))
    print(f"CUTLASS {tree.pin.tag} ({tree.pin.commit[:12]}): {files} files")
    print(f"wrote {pin.FOLDER}/")
    return 0


def index(
    paths: Annotated[tyro.conf.Positional[tuple[str, ...]], named("[PATH ...]")] = (),
    compile: bool = True,
    workers: int = 0,
    timeout: float = 240.0,
) -> int:
    """Read and compile the examples, and write their facts.

    Args:
        paths: Examples, or folders of them, below the examples' folder; all by default.
        compile: Compile them; without it only their sources are read.
        workers: Examples compiled at a time; the number of cores by default.
        timeout: Seconds each example may take to compile.
    """
    from mla_var3.examples import catalog
    from mla_var3.examples.index import index as run

    if workers < 0 or timeout <= 0:
        raise UsageError(f"--workers={workers} and --timeout={timeout:g} must be positive")
    tree = pin.tree(repo_root())
    entries = [
        entry
        for entry in catalog.entries(tree)
        if not paths or any(_below(entry.path, path) for path in paths)
    ]
    if not entries:
        raise KnowledgeError(f"no example lies below {', '.join(paths)} of {pin.EXAMPLES}")
    done = run(
        repo_root(), tree, entries, compile_them=compile, workers=workers or None,
        timeout=timeout, progress=print,
    )  # fmt: skip
    for name in done.vanished:
        print(f"{store.FOLDER}/{name}.toml: its example is not in {tree.pin.tag}")
    print(
        f"{len(done.examples)} examples, {done.compiled} compiled, {len(done.changed)} files "
        f"written\nwrote {store.FOLDER}/"
    )
    return 0


def _below(path: str, asked: str) -> bool:
    asked = asked.strip("/").removeprefix(f"{pin.EXAMPLES}/")
    return path == asked or path.startswith(f"{asked}/") or store.id_of(path) == asked


def show(example: Annotated[tyro.conf.Positional[str], named("PATH")]) -> int:
    """Print what to look for in an example, and what the compiler makes of it.

    Args:
        example: Path below the examples' folder, or id.
    """
    from mla_var3.examples.show import reading

    name, found = _annotated(example)
    _print(reading(name, found))
    return 0


def extract(
    example: Annotated[tyro.conf.Positional[str], named("PATH")],
    pattern: str,
    page: str = "",
) -> int:
    """Start a pattern page from what an example shows.

    Args:
        example: Path below the examples' folder, or id.
        pattern: Entry of its checklist, such as tma-pipeline.
        page: Id of the page; made of both by default.
    """
    from mla_var3.examples.extract import extract as start

    name, found = _annotated(example)
    file = start(repo_root(), name, found, pattern, page or f"cute-{pattern}-{name}"[:60])
    print(f"wrote {file.relative_to(repo_root()).as_posix()}")
    return 0


def path(
    name: Annotated[tyro.conf.Positional[str], named("[PATH]")] = "",
    step: Annotated[tyro.conf.Positional[int], named("[STEP]")] = 0,
    answers: bool = False,
    answer: str = "",
    check: bool = False,
) -> int:
    """Walk a learning path: all of them, one, or one step, and check an exercise.

    Args:
        name: A path by its letter or its id.
        step: A step of it, from 1.
        answers: Show the answers of a step's questions.
        answer: Your answer to a step's exercise; its script runs and tells whether it is right.
        check: Run the exercises of a step, a path or all, and compare what they say with what
            the path says.
    """
    from mla_var3.examples import course, learning

    root = repo_root()
    known = learning.load(root)
    if not known.paths:
        raise KnowledgeError(f"{learning.PATHS} holds no path")
    chosen = known.find(name) if name else ""
    if step and not 1 <= step <= len(known.paths[chosen].steps):
        raise UsageError(f"path {chosen} has steps 1 to {len(known.paths[chosen].steps)}")
    if answer and (not step or check):
        raise UsageError("--answer is for one step, as in `path A 1 --answer 42`")
    if answer:
        return _judge(known.paths[chosen].steps[step - 1], answer)
    if check:
        return _check(known, chosen, step)
    if step:
        _print(course.step_text(root, known, chosen, step, answers))
    else:
        _print(course.contents(known, chosen) if chosen else course.overview(known))
    return 0


def _judge(step: Step, answer: str) -> int:
    from mla_var3.examples.exercises import computed, same

    print(f"running {step.exercise.file}")
    if not same(answer, computed(repo_root(), step.exercise)):
        print(f"{answer} is not right; read the task again, or run the script and print more")
        return 1
    print(f"right: {step.exercise.answer}. {step.exercise.why}")
    return 0


def _check(known: Learning, chosen: str, only: int) -> int:
    from mla_var3.examples.exercises import computed, same

    wrong = 0
    for name, number, step in known.steps():
        if (chosen and name != chosen) or (only and number != only):
            continue
        found = computed(repo_root(), step.exercise)
        agrees = same(found, step.exercise.answer)
        wrong += not agrees
        verdict = "agrees" if agrees else f"the path says {step.exercise.answer}"
        print(f"{name} {number} {step.exercise.script}: {found}, {verdict}", flush=True)
    return 1 if wrong else 0


def _print(text: str) -> None:
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=PIPE_WIDTH)
    console.print(Markdown(text))


def _annotated(asked: str) -> tuple[str, Example]:
    """An indexed example by id or path; KnowledgeError when there is none."""
    known = store.read(repo_root())
    wanted = asked.strip("/").removeprefix(f"{pin.EXAMPLES}/")
    name = wanted if wanted in known else store.id_of(wanted)
    if name not in known:
        if not known:
            raise KnowledgeError(
                f"{store.FOLDER} holds no example; run `nox -s examples -- fetch` and then index"
            )
        import difflib

        near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise KnowledgeError(f"no example is indexed as {asked!r}{hint}")
    return name, known[name]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that ``argv`` (the process's by default) names."""
    command, rest, prog = arguments.choose(
        {
            "fetch": fetch,
            "index": index,
            "show": show,
            "path": path,
            "extract": extract,
        },
        sys.argv[1:] if argv is None else argv,
        "python -m mla_var3.examples",
    )
    return arguments.parse(command, rest, prog) or 0


if __name__ == "__main__":
    front.run("mla_var3.examples.__main__:main")
