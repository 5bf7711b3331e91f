"""Table ``COMMANDS``: the module and help text behind each ``nox -s NAME`` and ``hypermla NAME``.

noxfile.py runs this file as it is, before anything is installed: it imports nothing of ours.
"""

from typing import NamedTuple


class Command(NamedTuple):
    """A command of the project.

    Attributes:
        module: What ``python -m`` runs.
        help: One line: the arguments, then what it does.
        arguments: What stands before the user's arguments.
        extras: Sets of dependencies that it needs beside the package's own.
    """

    module: str
    help: str
    arguments: tuple[str, ...] = ()
    extras: tuple[str, ...] = ()


COMMANDS = {
    "check": Command(
        "mla_var3.app.commands",
        "check [-- D [V] | FILE]: correctness of a version, a design, all, or an adopted file.",
        ("check",),
    ),
    "profile": Command(
        "mla_var3.kernel",
        "profile -- D [V] | FILE [flags]: static without a GPU, else timed; see --help after D.",
    ),
    "compare": Command(
        "mla_var3.app.commands",
        "compare -- D V1 V2 | FILE FILE: two versions side by side, from their records.",
        ("compare",),
    ),
    "bench": Command(
        "mla_var3.app.commands",
        "bench [-- flags]: all designs and versions of one workload on one problem, in one table.",
        ("bench",),
    ),
    "adopt": Command(
        "mla_var3.app.adopt",
        "adopt -- FILE | EXAMPLE: a cuTile, CuTe, Triton or torch file, from then on like ours.",
    ),
    "campaign": Command(
        "mla_var3.app.campaign",
        "campaign -- step0|init|next|plan|gate|auto|memory|restart|publish: a kernel worked.",
    ),
    "sweep": Command(
        "mla_var3.app.sweep",
        "sweep -- SPEC.toml: many versions, problems, tilings and targets; on many GPUs with Dask.",
        extras=("sweep",),
    ),
    "contribute": Command(
        "mla_var3.app.contribute",
        "contribute [-- FILE]: times a standard set on a GPU of yours, as one file to send.",
        extras=("gpu",),
    ),
    "tools": Command(
        "mla_var3.app.tools",
        "tools -- time|utilization|bandwidth|asm|trials|plan D V, ceilings DEVICE: one question.",
    ),
    "clone": Command(
        "mla_var3.app.clone", "clone -- D vN vM: a new version vM that starts as a copy of vN."
    ),
    "flatten": Command(
        "mla_var3.app.flatten",
        "flatten -- D V: a version as one file, with what it takes of the kit.",
    ),
    "records": Command(
        "mla_var3.app.records", "records -- verify|list|show PATH|schema: the committed records."
    ),
    "codes": Command(
        "mla_var3.app.codes",
        "codes -- check|write [D [V]]: whether versions compile to what they were measured as.",
    ),
    "run": Command(
        "mla_var3.app.run",
        "run -- [--arch=ARCH] SCRIPT [ARGS]: any cuTile or CuTe script, without a GPU.",
    ),
    "conformance": Command(
        "mla_var3.app.conformance",
        "conformance -- SUITE [flags]: what others wrote (NVIDIA's tests and examples), run here.",
        extras=("dev",),
    ),
    "examples": Command(
        "mla_var3.examples",
        "examples -- fetch|index|show|path|extract: the CUTLASS examples, and paths.",
    ),
    "skills": Command(
        "mla_var3.app.skills",
        "skills -- install [DIR]|list: what an agent is told of this project, where it looks.",
    ),
    "bundle": Command(
        "mla_var3.app.bundle",
        "bundle [-- --python=3.12]: project and toolchain for a GPU host without a network.",
    ),
    "devices": Command("mla_var3.devices", "devices -- check|list|show KEY: the device files."),
    "knowledge": Command(
        "mla_var3.knowledge",
        'knowledge -- lint, query "words", api "words", match RECORD, backtest, reference.',
    ),
    "references": Command(
        "mla_var3.knowledge.references",
        "references -- check|write|cutlass: what is known of the DSLs' names, and CUTLASS's C++.",
        extras=("references",),
    ),
}
