"""Makes the reference pages: API, flags of every version, nox sessions, and the record schema."""

from __future__ import annotations

import ast
import dataclasses
import json
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from generators.model.columns import language_title
from generators.model.site import Site
from generators.write.figures import layer_title
from generators.write.page import Page
from generators.write.text import cell, docstring, sections, table
from mla_var3 import evidence
from mla_var3.app.options import RunOptions
from mla_var3.app.sessions import COMMANDS
from mla_var3.errors import KnowledgeError
from mla_var3.knowledge.references.model import load_all
from mla_var3.paths import relative
from mla_var3.runtime import Tiling
from mla_var3.runtime.registry import Version

PACKAGE = "mla_var3"
INDEX = "reference/index.md"
API, CLI, SCHEMA = "reference/api", "reference/cli", "reference/records.md"
#: Parts of the package with pages of their own, or with nothing to call.
NOT_API = frozenset({"kernel", "conf"})


def places(site: Site) -> dict[str, str]:
    """The page of each public module, and of what the other pages are derived from."""
    found = {
        f"src/{module.replace('.', '/')}.py": f"{path}#{module}"
        for path, modules in api_modules(site.root).items()
        for module in modules
    }
    found |= {"src/mla_var3/evidence/__init__.py": SCHEMA, "noxfile.py": f"{CLI}/index.md"}
    return found


def pages(site: Site) -> list[Page]:
    """All pages of the reference, and the schema as a file."""
    schema = json.dumps(evidence.json_schema(), indent=1) + "\n"
    return [
        index_page(site),
        cli_page(site),
        *(design_page(versions) for versions in site.designs().values()),
        schema_page(),
        Page("reference/record.schema.json", schema),
        *api_pages(site.root),
    ]


def index_page(site: Site) -> Page:
    """What the reference holds, and where else facts of the kind are."""
    link = site.link(INDEX)
    references = "".join(
        f"- [{found.head.title} API]({link(f'knowledge/references/{found.key}')}): every name, "
        f"held to the installed `{found.head.package}`.\n"
        for found in load_all(site.root)
    )
    content = sections(
        "# Reference",
        f"{references}"
        "- [Command line](cli/index.md): the nox sessions, and every flag of every version.\n"
        f"- [Schema of records](records.md): what a run leaves behind.\n"
        f"- [Metrics]({link('docs/contributing/metrics.md')}): what a trigger or a piece "
        "of evidence can name, and where a record states it.\n"
        f"- [Lint checks]({link('docs/contributing/checks.md')}): what knowledge pages "
        "and devlogs must satisfy.\n"
        f"- [Bring your own kernel]({link('docs/adopt.md')}): a cuTile, CuTe DSL, Triton or "
        "PyTorch file that the commands take as they take our versions.\n"
        f"- [Interpreter]({link('docs/interpreter.md')}): running any cuTile kernel on the CPU.\n"
        f"- [Serving]({link('docs/serving.md')}): a drop-in for FlashMLA's calls and FlashInfer's "
        "MLA wrapper, over our kernels.\n"
        f"- [Glossary]({link('docs/glossary')}): the words of this site.\n"
        f"- [API](api/index.md): the modules of the package.",
    )
    return Page(INDEX, content, None, ("Reference",))


# -- API -------------------------------------------------------------------------------------------


def api_modules(root: Path) -> dict[str, list[str]]:
    """Public modules by the page that documents them: one per subpackage or top-level module."""
    source, found = root / "src" / PACKAGE, {}
    for top in sorted(source.iterdir()):
        if top.name.startswith("_") or top.stem in NOT_API:
            continue
        files = sorted(top.rglob("*.py")) if top.is_dir() else [top] if top.suffix == ".py" else []
        modules = [
            ".".join((PACKAGE, *file.relative_to(source).with_suffix("").parts))
            for file in files
            if not any(part.startswith("_") for part in file.relative_to(source).parts)
        ]
        if modules:
            found[f"{API}/{top.stem}.md"] = modules
    return found


def api_pages(root: Path) -> list[Page]:
    """A page per subpackage, with an mkdocstrings identifier per module."""
    found, rows = [], []
    for path, modules in api_modules(root).items():
        name = f"{PACKAGE}.{Path(path).stem}"
        file = root / "src" / PACKAGE / Path(path).stem
        file = file / "__init__.py" if file.is_dir() else file.with_suffix(".py")
        source, summary = relative(file, root), cell(docstring(file))
        rows.append([f"[`{name}`]({Path(path).name})", summary])
        blocks = [
            f"::: {module}\n    options:\n      show_root_heading: true\n      heading_level: 2"
            for module in modules
        ]
        content = sections(f"# `{name}`", summary, *blocks)
        found.append(Page(path, content, source, ("Reference", "API", name)))
    index = sections(
        "# API",
        "The public modules of the package. Kernels have pages of their own: they are run, not "
        "called.",
        table(["Module", "Holds"], rows),
    )
    return [Page(f"{API}/index.md", index, None, ("Reference", "API")), *found]


# -- command line ----------------------------------------------------------------------------------


def sessions_of(noxfile: Path) -> dict[str, str]:
    """The nox sessions with the first line of their documentation, in file order."""
    found: dict[str, str] = {}
    for node in ast.parse(noxfile.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.For) and ast.unparse(node.iter) == "COMMANDS.items()":
            found |= {name: command.help for name, command in COMMANDS.items()}
        if not isinstance(node, ast.FunctionDef) or not node.decorator_list:
            continue
        text = ast.get_docstring(node)
        if not text:
            raise KnowledgeError(f"nox session {node.name} does not say what it does")
        found[node.name] = text.splitlines()[0]
    return found


@dataclass(frozen=True)
class Flag:
    """A flag of a version.

    Attributes:
        group: ``Problem``, or the stage whose tiling it belongs to.
        name: With dashes, as it is typed.
        type: What it takes.
        default: What it is when not given.
        help: What it means.
    """

    group: str
    name: str
    type: str
    default: str
    help: str


def flags_of(version: Version) -> Iterator[Flag]:
    """The flags of a version that are its own: problem sizes and tilings.

    See ``mla_var3.app.options`` for how they come about.
    """
    plan_class = version.plan_class()
    plan, hints = plan_class(), plan_class.benchmark_kernel_argparse()
    for field in plan_class.option_fields():
        default = getattr(plan, field.name)
        yield _flag("Problem", field.name, hints[field.name], default, field)
    single = len(plan_class.tiling_types) == 1
    for stage, tiling_type in plan_class.tiling_types.items():
        tiling: Tiling = plan.default_tiling(stage)
        hints = typing.get_type_hints(tiling_type)
        for field in dataclasses.fields(tiling_type):
            name = field.name if single else f"{stage}.{field.name}"
            # A tiling's field can be unset, so that even a bool takes a value.
            hint = Literal[True, False] if hints[field.name] is bool else hints[field.name]
            yield _flag(f"Tiling of {stage}", name, hint, getattr(tiling, field.name), field)


def run_flags() -> list[Flag]:
    """The flags that every version has."""
    hints = typing.get_type_hints(RunOptions)
    return [
        dataclasses.replace(flag, name=f"--{field.name}") if hints[field.name] is bool else flag
        for field in dataclasses.fields(RunOptions)
        for flag in [_flag("Run", field.name, hints[field.name], field.default, field)]
    ]


def _flag(group: str, name: str, hint: Any, default: Any, field: dataclasses.Field[Any]) -> Flag:
    shown = f"--{name}, --no_{name}" if hint is bool else f"--{name}"
    value = "" if default is None else str(default)
    value = value.lower() if hint is bool else value
    return Flag(group, shown, type_text(hint), value, field.metadata.get("help", ""))


def type_text(hint: Any) -> str:
    """A type as words: ``int or none``, ``bf16 or fp16``."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return " or ".join(map(str, arguments))
    if origin in (typing.Union, types.UnionType):
        return " or ".join(type_text(argument) for argument in arguments)
    if hint is type(None):
        return "none"
    names = {bool: "flag", Path: "path"}
    return names.get(hint, getattr(hint, "__name__", str(hint)))


def _flag_rows(flags: Iterable[Flag]) -> list[list[str]]:
    return [
        [f"`{flag.name}`", cell(flag.type), f"`{flag.default}`" if flag.default else "",
         cell(flag.help)]
        for flag in flags
    ]  # fmt: skip


_HEAD = ["Flag", "Takes", "Default", "Meaning"]


def cli_page(site: Site) -> Page:
    """Sessions, the flags of every run, and where those of a design are."""
    rows = [
        [f"`{name}`", cell(text)] for name, text in sessions_of(site.root / "noxfile.py").items()
    ]
    designs = "\n".join(
        f"- {layer_title(layer)}\n"
        + "\n".join(
            f"    - [{cell(versions[0].design_key)}]({_file(versions)}), "
            f"{cell(language_title(versions[0].language))}: "
            f"{', '.join(version.version for version in versions)}"
            for versions in found
        )
        for layer, found in site.layers().items()
    )
    content = sections(
        "# Command line",
        "Everything is a nox session: `python -m pip install nox` is the only step before. Each "
        "says what it does while it does it and ends with the paths that it wrote. What stands "
        "behind `--` goes to the session. Where the package is installed, `hypermla NAME "
        "arguments` runs its commands among them, without nox and without the `--`.",
        "## Sessions",
        table(["Session", "Does"], rows),
        "## A run",
        "`nox -s profile -- D [V] [flags]`, or `python -m mla_var3.kernel D [V] [flags]` in an "
        "environment of your own. Every version takes these flags, besides its own:",
        table(_HEAD, _flag_rows(run_flags())),
        "## Flags of a design",
        "Problem sizes and tilings are flags too. An unset tiling field is the default tiling's; "
        "an unset size that has no default is worked out for the device.",
        designs,
        "Exit codes: 0 all is well, 1 a check or a run failed, 2 bad input, said in one sentence.",
    )
    return Page(f"{CLI}/index.md", content, "noxfile.py", ("Reference", "Command line"))


def _file(versions: list[Version]) -> str:
    """Name of the file of a design's flags."""
    return f"{versions[0].layer}-{versions[0].language}-{versions[0].design}.md"


def design_page(versions: list[Version]) -> Page:
    """Flags of a design's versions; those that not all versions have say whose they are."""
    design = versions[0].design_key
    found: dict[Flag, list[str]] = {}
    for version in versions:
        for flag in flags_of(version):
            found.setdefault(flag, []).append(version.version)
    parts = []
    for group in dict.fromkeys(flag.group for flag in found):
        flags = [flag for flag in found if flag.group == group]
        rows = [
            [*row, "" if len(found[flag]) == len(versions) else ", ".join(found[flag])]
            for flag, row in zip(flags, _flag_rows(flags), strict=True)
        ]
        parts += [f"## {cell(group)}", table([*_HEAD, "Only"], rows)]
    names = ", ".join(version.version for version in versions)
    content = sections(
        f"# Flags of {cell(design)}",
        f"Versions {names}. Defaults are those of the default problem; the flags that every run "
        "has are on [another page](index.md#a-run).",
        f"```console\n$ nox -s profile -- {design} {versions[-1].version} --help\n```",
        *parts,
    )
    place = ("Reference", "Command line", layer_title(versions[0].layer), design)
    return Page(f"{CLI}/{_file(versions)}", content, None, place)


# -- schema of records -----------------------------------------------------------------------------


def schema_page() -> Page:
    """The record's JSON Schema as tables."""
    schema = evidence.json_schema()
    models = {schema["title"]: schema, **schema["$defs"]}
    parts = []
    for name, model in models.items():
        rows = [
            [
                f"`{field}`",
                schema_type(spec),
                "yes" if field in model.get("required", ()) else "",
                cell(spec.get("description", "")),
            ]
            for field, spec in model["properties"].items()
        ]
        description = " ".join(model.get("description", "").split())
        parts += [
            f"## {cell(name)}",
            cell(description),
            table(["Field", "Type", "Required", "Meaning"], rows),
        ]
    content = sections(
        "# Schema of records",
        "A file holds what one run observed of one design: `results/<target>/<language package>/"
        "<workload>/<design>/<time>-<run>.json`, where the target is a device key, `static/sm_xx` "
        "or `cpu`. It says run, device, toolchain, sources and protocols once, then an entry per "
        "version, problem and mode, which is a record. A later run is another file: nothing that "
        "was measured is replaced, and where a record is named without a run, it is the newest. An "
        "outcome is `Passed`, `Failed` or `Skipped`, and only the first holds numbers. A record "
        "holds what was observed and nothing that follows from it: FLOPs and bytes of the cost "
        "model, bounds, occupancy and regimes are worked out when it is read. The same as "
        "[JSON Schema](record.schema.json), which `python -m mla_var3.evidence` prints.",
        *parts,
    )
    return Page(
        SCHEMA, content, "src/mla_var3/evidence/__init__.py", ("Reference", "Schema of records")
    )


def schema_type(spec: Mapping[str, Any]) -> str:
    """The type that a JSON Schema states, as Markdown."""
    if "$ref" in spec:
        name = spec["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    for key in ("anyOf", "oneOf"):
        if key in spec:
            return " or ".join(schema_type(part) for part in spec[key])
    if "const" in spec:
        return f"`{json.dumps(spec['const'])}`"
    if "enum" in spec:
        return " or ".join(f"`{value}`" for value in spec["enum"])
    if spec.get("type") == "array":
        return f"list of {schema_type(spec['items'])}" if "items" in spec else "list"
    inner = spec.get("additionalProperties")
    if spec.get("type") == "object" and isinstance(inner, dict):
        return f"mapping to {schema_type(inner)}"
    kind = str(spec.get("type", "any"))
    return kind if "pattern" not in spec else f"{kind} matching {_pattern(spec['pattern'])}"


def _pattern(pattern: str) -> str:
    # In a table renderers disagree about a bar between backticks.
    return f"<code>{cell(pattern)}</code>"
