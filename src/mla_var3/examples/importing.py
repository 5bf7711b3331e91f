"""Generates a kernel package of ours that runs a fetched CUTLASS example in place.

The package holds a plan (inputs, reference and cost of the workload, tilings, launch) and a devlog
that starts from the example's facts. The plan calls the example's host function by a recipe: a text
in ``recipes/`` for each way in which examples want to be called.
"""

from __future__ import annotations

import ast
import keyword
import re
import shutil
import string
import tempfile
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from mla_var3.errors import KnowledgeError, ToolchainError, UsageError
from mla_var3.examples import compile_all, devlog
from mla_var3.examples.catalog import Entry, find
from mla_var3.examples.index import annotated
from mla_var3.examples.model import Example
from mla_var3.examples.pin import Tree
from mla_var3.languages.cute import arch as archs

#: Element types of examples that are of one alone, as their names end, and how torch names them.
ELEMENTS = {"fp16": "float16", "fp8": "float8_e4m3fn"}
#: Folder of designs in this language, below the kernels folder.
PACKAGE = "cute_python"
WIDTH = 100


@dataclass(frozen=True)
class Recipe:
    """One way in which examples want to be called.

    Attributes:
        text: File of the plan's text.
        layer: The workload.
        made: Parameters of the constructor of the example's host class.
        called: Parameters of its ``__call__``.
    """

    text: str
    layer: str
    made: tuple[str, ...]
    called: tuple[str, ...]


_MLA = Recipe(
    "blackwell_mla.txt",
    "mla",
    (
        "acc_dtype", "lse_dtype", "mma_qk_tiler_mn", "mma_pv_tiler_mn", "max_active_clusters",
        "page_size", "skip_correction_threshold", "is_persistent", "is_var_seq", "is_var_split_kv",
    ),
    (
        "q_latent", "q_rope", "c_latent", "c_rope", "page_table", "o", "lse", "workspace",
        "split_kv", "cache_seqs", "block_split_kvs", "softmax_scale", "output_scale", "stream",
    ),
)  # fmt: skip
RECIPES = (
    Recipe(
        "hopper_gemm.txt", "gemm", ("acc_dtype", "tile_shape_mn", "cluster_shape_mn"),
        ("a", "b", "c", "stream"),
    ),
    Recipe(
        "ampere_gemm.txt", "gemm",
        ("ab_dtype", "c_dtype", "acc_dtype", "atom_layout_mnk", "is_m_major_c"),
        ("mA", "mB", "mC", "stream", "epilogue_op"),
    ),
    Recipe(
        "ampere_attention.txt", "attention",
        ("head_dim", "m_block_size", "n_block_size", "num_threads", "is_causal"),
        ("mQ", "mK", "mV", "mO", "softmax_scale", "stream"),
    ),
    Recipe(
        "hopper_attention.txt", "attention",
        ("qk_acc_dtype", "pv_acc_dtype", "mma_tiler", "is_persistent", "mask_type"),
        (
            "q", "k", "v", "o", "lse", "scale_softmax_log2", "scale_softmax", "scale_output",
            "window_size_left", "window_size_right", "stream",
        ),
    ),
    _MLA,
)  # fmt: skip


def bring(
    root: Path, kernels: Path, tree: Tree, asked: str, design: str, arch: str = ""
) -> tuple[Path, Example]:
    """Write the package of a design that drives an example.

    Args:
        root: Top of the checkout.
        kernels: The kernels folder.
        tree: The fetched tree.
        asked: The example, by path or id.
        design: Name of the design.
        arch: What it has to compile for; the example's own arch by default.

    Returns:
        The package's folder, and the example's facts.

    Raises:
        UsageError: The name is none, or is taken.
        KnowledgeError: There is no such example, no recipe drives it, or the arch does not fit.
        ToolchainError: It does not compile.
    """
    _free(kernels, design)
    entry = find(tree, asked)
    host, recipe = _driven_by(entry)
    _fits(entry, arch)
    example = _compiled(root, entry)
    target = kernels / PACKAGE / recipe.layer / design
    _write(target, _files(entry, host, recipe, design, example))
    return target, example


def _free(kernels: Path, design: str) -> None:
    """Raise UsageError unless a new design may have the name."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", design) or keyword.iskeyword(design):
        raise UsageError(f"--design={design} is not a name: lower case words joined by underscores")
    if re.search(r"_v\d+$", design):
        raise UsageError(f"--design={design} ends like a version; designs have names of their own")
    taken = next(kernels.glob(f"{PACKAGE}/*/{design}"), None)
    if taken is not None:
        where = taken.relative_to(kernels).as_posix()
        raise UsageError(f"--design={design} is taken by kernels/{where}; choose another name")


def _driven_by(entry: Entry) -> tuple[str, Recipe]:
    """The example's host class, and the recipe that drives it."""
    hosts = dict(_hosts(entry))
    for name, (made, called) in hosts.items():
        for recipe in RECIPES:
            if (recipe.made, recipe.called) == (made, called):
                return name, recipe
    takes = "; ".join(f"{name}({', '.join(made)})" for name, (made, _) in hosts.items())
    raise KnowledgeError(
        f"no recipe drives {entry.path}: its host classes are {takes or 'none'}; write one in "
        "src/mla_var3/examples/recipes"
    )


def _hosts(entry: Entry) -> list[tuple[str, tuple[tuple[str, ...], tuple[str, ...]]]]:
    """Classes that can be called, with what their constructor and their call take."""
    found = []
    for node in ast.parse(entry.source.text).body:
        if isinstance(node, ast.ClassDef):
            methods = {m.name: m for m in node.body if isinstance(m, ast.FunctionDef)}
            if {"__init__", "__call__"} <= methods.keys():
                made, called = (
                    tuple(a.arg for a in methods[name].args.args[1:])
                    for name in ("__init__", "__call__")
                )
                found.append((node.name, (made, called)))
    return found


def _fits(entry: Entry, arch: str) -> None:
    """Raise KnowledgeError when the example cannot be compiled for an arch."""
    if arch:
        reason = archs.refusal(archs.features(set(entry.source.names)), archs.key(arch))
        if reason is not None:
            raise KnowledgeError(f"{entry.path} {reason}")


def _compiled(root: Path, entry: Entry) -> Example:
    """The example's facts; ToolchainError when it does not compile."""
    from mla_var3.examples import store

    result = compile_all.compile_entries([entry])[entry.name]
    if not result.kernels:
        raise ToolchainError(f"{entry.path} does not compile: {result.reason}")
    return annotated(entry, result, store.read(root).get(entry.name))


def _files(
    entry: Entry, host: str, recipe: Recipe, design: str, example: Example
) -> Mapping[str, str]:
    """Texts of the package by path below it."""
    name = entry.path.rpartition("/")[2].removesuffix(".py")
    dtype = next((e for e in ELEMENTS if name.endswith(e)), "fp16")
    values = {
        "example": name,
        "dtype": dtype,
        "torch_dtype": ELEMENTS[dtype],
        "title": textwrap.fill((example.goal or example.title).rstrip(".") + ".", WIDTH),
        "path": entry.path,
        "blob": entry.blob,
        "design": design,
        "host": host,
    }
    text = resources.files("mla_var3.examples").joinpath("recipes", recipe.text).read_text("utf-8")
    about = f"CUTLASS's example {values['example']}, run in place by a plan of ours."
    return {
        "__init__.py": f'"""{about}"""\n',
        "__main__.py": _MAIN.substitute(values, layer=recipe.layer),
        "devlog.md": devlog.text(design, entry, example),
        f"{design}/__init__.py": f'"""The base version: {about[:-1]}."""\n',
        f"{design}/{design}.py": string.Template(text).substitute(values),
    }


_MAIN = string.Template(
    '''"""``python -m mla_var3.kernel.cute_python.$layer.$design [V]``."""

from mla_var3.front import run

if __name__ == "__main__":
    run("mla_var3.app.cli:main", design="$design", language="cute-dsl")
'''
)


def _write(target: Path, files: Mapping[str, str]) -> None:
    """Write a package beside its place and move it there whole."""
    layer = target.parent
    is_new = not layer.exists()
    layer.mkdir(parents=True, exist_ok=True)
    staged = Path(tempfile.mkdtemp(prefix=".import-", dir=layer.parent))
    try:
        for path, text in files.items():
            file = staged / target.name / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        if is_new:
            name = layer.name.capitalize()
            (layer / "__init__.py").write_text(f'"""{name} designs."""\n', encoding="utf-8")
        (staged / target.name).replace(target)
    finally:
        shutil.rmtree(staged, ignore_errors=True)
