"""Every Python snippet of the knowledge: what it names exists, what it calls takes its arguments.

Snippets that need nothing else are run.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest

from mla_var3.paths import repo_root

_CUTE_MLA = "mla_var3.kernel.cute_python.mla.flash_mla"
_FLASH_MLA = "mla_var3.kernel.cutile.mla.flash_mla"
#: What a reader has imported, by the name that the snippets use.
IMPORTED = {
    "ct": "cuda.tile",
    "torch": "torch",
    "itertools": "itertools",
    "functools": "functools",
    "inspect": "inspect",
    "keyword": "keyword",
    "os": "os",
    "dataclass": "dataclasses:dataclass",
    "Tiling": "mla_var3.runtime:Tiling",
    "option": "mla_var3.workloads.base:option",
    "TilingError": "mla_var3.errors:TilingError",
    "FlashMlaTiling": f"{_FLASH_MLA}.flash_mla_v2.flash_mla_v2:FlashMlaTiling",
    "flash_mla_cost": "mla_var3.workloads.mla:flash_mla_cost",
    "flash_attention_cost": "mla_var3.workloads.mla:flash_attention_cost",
    "cutlass": "cutlass",
    "cute": "cutlass.cute",
    "pipeline": "cutlass.pipeline",
    "cpasync": "cutlass.cute.nvgpu:cpasync",
    "warpgroup": "cutlass.cute.nvgpu:warpgroup",
    "Boolean": "cutlass:Boolean",
    "Int32": "cutlass:Int32",
    "range_constexpr": "cutlass:range_constexpr",
    "tma_atom": "mla_var3.kernel.cute_python.gemm.hopper_gemm.common:tma_atom",
    "send_half": f"{_CUTE_MLA}.common:send_half",
    "add_half": f"{_CUTE_MLA}.common:add_half",
    "Float32": "cutlass:Float32",
    "BFloat16": "cutlass:BFloat16",
    "SmemAllocator": "cutlass.memory:SmemAllocator",
    "make_fake_compact_tensor": "cutlass.cute.runtime:make_fake_compact_tensor",
    "make_fake_stream": "cutlass.cute.runtime:make_fake_stream",
    "cuda": "cuda.bindings:driver",
}
#: Called in a snippet and the reader's own: the launch, the arguments and the kernel at hand.
OWN = {"obj", "with_tile", "args", "kernel", "StreamLatent", "cluster_sync"}


@dataclass(frozen=True)
class Snippet:
    page: str
    line: int
    text: str

    @property
    def tree(self) -> ast.Module:
        # A signature may leave the rest of its parameters out, which Python cannot.
        plain = re.sub(r"(\bdef \w+\([^()]*?)\.\.\.", r"\1*_", self.text)
        return ast.parse(textwrap.dedent(plain))

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def snippets() -> list[Snippet]:
    found = []
    for path in sorted((repo_root() / "knowledge").glob("**/*.md")):
        text = path.read_text()
        for match in re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            line = text.count("\n", 0, match.start()) + 1
            found.append(Snippet(path.stem, line, match[1]))
    return found


SNIPPETS = snippets()


def resolve(where: str) -> object:
    module, _, name = where.partition(":")
    found = importlib.import_module(module)
    return getattr(found, name) if name else found


def imports_of(tree: ast.Module) -> dict[str, object]:
    names: dict[str, object] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            module = importlib.import_module(str(node.module))
            names |= {a.asname or a.name: getattr(module, a.name) for a in node.names}
    return names


def value_of(node: ast.expr, names: dict[str, object]) -> object | None:
    """What a dotted name stands for; None where it is not of a module that is imported."""
    if isinstance(node, ast.Name):
        where = IMPORTED.get(node.id)
        return names.get(node.id) or (resolve(where) if where else None)
    if isinstance(node, ast.Attribute):
        base = value_of(node.value, names)
        return None if base is None or isinstance(node.ctx, ast.Store) else getattr(base, node.attr)
    return None


def bound_in(tree: ast.Module) -> set[str]:
    stored = {
        n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    defined = {n.name for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
    return stored | defined | {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}


def binds(function: object, call: ast.Call) -> bool:
    """Whether a call's arguments fit; True where Python cannot tell the signature."""
    if any(isinstance(a, ast.Starred) for a in call.args):
        return True
    keywords = {k.arg: None for k in call.keywords}
    if None in keywords or any(isinstance(a, ast.Constant) and a.value is ... for a in call.args):
        return True
    try:
        inspect.signature(function).bind(*call.args, **keywords)  # type: ignore[arg-type]
    except ValueError:
        return True
    except TypeError:
        return False
    return True


@pytest.mark.parametrize("snippet", SNIPPETS, ids=str)
def test_a_snippet_names_and_calls_what_exists(snippet):
    names = imports_of(snippet.tree)
    known = {*bound_in(snippet.tree), *dir(builtins), *IMPORTED, *OWN, *names}
    for node in ast.walk(snippet.tree):
        if isinstance(node, ast.Attribute):
            value_of(node, names)
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name):
                assert node.func.id in known, f"{node.func.id} does not exist"
            function = value_of(node.func, names)
            if function is not None:
                assert binds(function, node), ast.unparse(node)


def run(page: str, which: int = 0) -> dict[str, object]:
    found = [s for s in SNIPPETS if s.page == page][which]
    names: dict[str, object] = {}
    exec(compile(found.text, str(Path(found.page)), "exec"), names)
    return names


def test_blocks_are_shared_by_cost():
    share = run("o1-proportional-block-split")["share_blocks"]
    assert [share(132, 3.0, 1.0), share(132, 0, 1.0), share(132, 1.0, 0)] == [99, 0, 132]


def test_the_best_count_of_splits_fills_a_wave():
    best = run("o16-split-kv")["best_splits"]
    assert [best(64, 132, 64), best(512, 132, 64)] == [2, 1]


def test_pruning_says_why():
    from mla_var3.records import CutileFacts

    keep = run("o13-static-pruning")["keep"]
    facts = CutileFacts(
        kernel="k", arch="sm_90", registers=168, mma_path="HGMMA", threads_per_block=384,
        shared_bytes=1024,
    )  # fmt: skip
    assert keep(facts, "HGMMA") is None
    assert keep(facts.model_copy(update={"spill_loads": 3}), "HGMMA") == "3 spill instructions"
    assert keep(facts, "UTCHMMA") == "HGMMA where another tiling gets UTCHMMA"


def test_spills_fail_the_check_that_a9_proposes():
    from types import SimpleNamespace

    check = run("a9-default-warps-large-accumulator")["test_no_spills"]
    check(SimpleNamespace(spill_loads=0, spill_stores=0))
    with pytest.raises(AssertionError):
        check(SimpleNamespace(spill_loads=1, spill_stores=0))
