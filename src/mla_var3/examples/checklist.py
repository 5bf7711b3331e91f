"""Finds features (TMA, mbarriers, ...) in an example's syntax tree, with the lines of each."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from mla_var3.examples.model import CompiledKernel, Found, PatternId

#: Lines that an entry names at most: the first of each thing that was found.
ANCHORS = 8

#: What shows a pattern: identifiers by what they stand for. The order is that of the words.
MARKS: Mapping[PatternId, Mapping[str, str]] = {
    "tma-pipeline": {
        "TMA copy atoms": r"make_tiled_tma_atom\w*|CopyBulkTensorTile\w*|tma_load|cp_async_bulk\w*",
        "pipeline objects": r"Pipeline(Tma|Async|CpAsync|Umma|Producer|Consumer)\w*|\w*Pipeline",
        "mbarriers": r"mbarrier_\w+|MbarrierArray|mbarrier",
        "cp.async": r"cp_async(?!_bulk)\w*|CopyG2SOp",
    },
    "warp-specialization": {
        "warp roles": r"(\w+_)?warp_ids?|\w+_warp_id|warp_group_idx|is_\w*warp\w*",
        "registers moved between warps": r"setmaxregister_\w+|warpgroup_reg_\w+|setmaxnreg\w*",
        "one thread elected": r"elect_one|elect_sync",
        "named barriers": r"NamedBarrier|barrier_arrive|arrive_and_wait|named_barrier\w*",
    },
    "persistent-loop": {
        "tile scheduler": r"\w*TileScheduler\w*|\w*tile_sched\w*",
        "exit when no tile is left": r"is_valid_tile",
        "next tile": r"advance_to_next_work|get_current_work|initial_work_tile_info",
    },
    "online-softmax": {
        "running maximum and sum": r"row_max\w*|row_sum\w*|(\w+_)?max_prev|m_prev",
        "exponentials in base 2": r"exp2\w*|ex2\w*",
    },
    "register-accumulators": {
        "accumulators in tensor memory": r"TmemAllocator|allocate_tmem\w*|alloc_tmem|tmem_ptr\w*",
        "accumulator fragments": r"make_fragment(_C)?|make_rmem_tensor\w*|acc\w*_frag\w*",
    },
    "shared-memory-swizzle": {
        "layout atoms": r"make_smem_layout\w*|\w*SmemLayoutAtom\w*|get_smem_layout\w*",
        "explicit swizzles": r"make_swizzle|Swizzle\w*|swizzle_mode|swizzle",
    },
    "cluster-communication": {
        "multicast": r"\w*[Mm]ulticast\w*|\w*mcast\w*",
        "cluster barriers": r"cluster_(arrive|wait)\w*|cluster_barrier\w*",
        "distributed shared memory": r"mapa|map_dsmem\w*|\w*dsmem\w*",
        "two blocks on one multiplication": r"CtaGroup\.TWO|use_2cta\w*",
    },
    "epilogue": {
        "TMA stores": r"CopyBulkTensorTileS2GOp|\w*tma_store\w*|PipelineTmaStore",
        "stmatrix": r"StMatrix\w*|stmatrix",
        "registers to shared memory": r"(sm90_)?get_smem_store_op",
        "tensor memory to registers": r"get_tmem_load_op|tcgen05_ld|Ld32x32bOp\w*",
        "own function of the result": r"epilogue_op|epi_\w*op|\w*activation\w*|gelu\w*",
    },
    "boundary-handling": {
        "predicates": r"pred\w*|elem_less|make_identity_tensor|is_masked\w*|\w*residual\w*",
        "masks": r"(?!\w*m(ulti)?cast|make_layout_image)(\w+_)?mask(ing|ed)?(_\w+)?"
        r"|causal\w*|is_causal",
    },
    "pipeline-drain": {
        "producer waits for its last stages": r"producer_tail|tail",
        "asynchronous copies awaited": r"cp_async_wait_group|cp_async_bulk_wait_group|wait_group",
        "deallocation after the last use": r"relinquish_tmem_alloc\w*|free|dealloc_tmem",
    },
}


@dataclass(frozen=True)
class Source:
    """One example's text and what its syntax tree says."""

    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree."""
        return ast.parse(self.text)

    @cached_property
    def names(self) -> dict[str, list[int]]:
        """Lines on which each identifier is used, ascending; ``Group.TWO`` also as a whole."""
        found: dict[str, set[int]] = {}
        for node in ast.walk(self.tree):
            for name, line in _used(node):
                found.setdefault(name, set()).add(line)
        return {name: sorted(lines) for name, lines in found.items()}

    @cached_property
    def kernels(self) -> tuple[str, ...]:
        """Device functions: those decorated with ``kernel``."""
        return tuple(
            node.name
            for node in ast.walk(self.tree)
            if isinstance(node, ast.FunctionDef)
            and any(_decorator(each) == "kernel" for each in node.decorator_list)
        )

    @cached_property
    def acts(self) -> bool:
        """Whether running it does something: it has a ``__main__`` part, or calls its functions."""
        own = {node.name for node in self.tree.body if isinstance(node, ast.FunctionDef)}
        done = (n for n in self.tree.body if not isinstance(n, ast.FunctionDef | ast.ClassDef))
        inside = [node for statement in done for node in ast.walk(statement)]
        return any(
            (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in own)
            or (isinstance(node, ast.Constant) and node.value == "__main__")
            for node in inside
        )

    @property
    def length(self) -> int:
        """Lines."""
        return len(self.text.splitlines())


def _used(node: ast.AST) -> Iterator[tuple[str, int]]:
    match node:
        case ast.Attribute(value=ast.Attribute(attr=owner) | ast.Name(id=owner), attr=name):
            yield name, node.lineno
            yield f"{owner}.{name}", node.lineno
        case ast.Name(id=name) | ast.Attribute(attr=name):
            yield name, node.lineno
        case ast.keyword(arg=str(name)):
            yield name, node.value.lineno
        case ast.arg(arg=name):
            yield name, node.lineno


def _decorator(node: ast.expr) -> str:
    called = node.func if isinstance(node, ast.Call) else node
    return called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")


def checklist(source: Source, kernels: tuple[CompiledKernel, ...] = ()) -> tuple[Found, ...]:
    """Entries of the checklist that an example shows, in the list's order.

    Args:
        source: The example.
        kernels: Its compiled kernels, whose figures are added to the words.
    """
    found = []
    for pattern, marks in MARKS.items():
        lines = {
            word: [line for _, at in matching for line in at]
            for word, expression in marks.items()
            if (matching := _matching(source, expression))
        }
        figures = _FIGURES.get(pattern, lambda _kernels: [])(kernels)
        if not shows(pattern, set(lines), bool(figures)):
            continue
        words = [f"{word} ({_named(source, marks[word])})" for word in lines]
        found.append(
            Found(
                pattern=pattern, seen="; ".join([*words, *figures]), lines=_anchors(lines.values())
            )
        )
    return tuple(found)


def shows(pattern: PatternId, words: set[str], figures: bool) -> bool:
    """Whether what was found is enough for a pattern.

    Some identifiers stand in every kernel (an elected thread, a mask of one load); such an entry
    needs a second kind of evidence, or the compiled code.
    """
    needed: dict[PatternId, int] = {
        "warp-specialization": 2, "online-softmax": 2, "persistent-loop": 2,
    }  # fmt: skip
    return bool(words) and (len(words) >= needed.get(pattern, 1) or figures)


def _matching(source: Source, expression: str) -> list[tuple[str, list[int]]]:
    pattern = re.compile(expression)
    return [(name, at) for name, at in source.names.items() if pattern.fullmatch(name)]


def _named(source: Source, expression: str) -> str:
    """The identifiers used most, three at most."""
    ranked = sorted(_matching(source, expression), key=lambda item: (-len(item[1]), item[0]))
    return ", ".join(f"`{name}`" for name, _ in ranked[:3])


def _anchors(groups: Iterable[list[int]]) -> tuple[int, ...]:
    """First lines of each kind, then further ones, at most :data:`ANCHORS`."""
    rows = [sorted(set(group)) for group in groups]
    first = [row[0] for row in rows if row]
    rest = sorted({line for row in rows for line in row[1:]} - set(first))
    step = max(1, len(rest) // max(1, ANCHORS - len(first)))
    return tuple(sorted({*first, *rest[::step][: max(0, ANCHORS - len(first))]}))


def _tma(kernels: tuple[CompiledKernel, ...]) -> list[str]:
    stages = {each.pipeline_stages for each in kernels if each.pipeline_stages}
    barriers = {each.mbarriers for each in kernels if each.mbarriers}
    told = [_counted(values, what) for values, what in ((stages, "stage"), (barriers, "mbarrier"))]
    words = "; ".join(filter(None, told))
    return [f"compiled: {words}"] if words else []


def _roles(kernels: tuple[CompiledKernel, ...]) -> list[str]:
    budgets = {budget for each in kernels for budget in each.register_budgets}
    threads = {each.threads_per_block for each in kernels}
    if not budgets:
        return []
    return [f"compiled: registers {', '.join(sorted(budgets))}, {_numbers(threads)} threads"]


def _clusters(kernels: tuple[CompiledKernel, ...]) -> list[str]:
    sizes = {each.blocks_per_cluster for each in kernels if each.blocks_per_cluster > 1}
    return [f"compiled: clusters of {_numbers(sizes)} blocks"] if sizes else []


def _stores(kernels: tuple[CompiledKernel, ...]) -> list[str]:
    counts = {each.tma_stores for each in kernels if each.tma_stores}
    return [f"compiled: {_counted(counts, 'TMA store')}"] if counts else []


def _sums(kernels: tuple[CompiledKernel, ...]) -> list[str]:
    paths = {each.mma_path for each in kernels if each.mma_path != "none"}
    return [f"compiled: {' and '.join(sorted(paths))}"] if paths else []


def _counted(values: set[int], what: str) -> str:
    return f"{_numbers(values)} {what}{'' if values == {1} else 's'}" if values else ""


def _numbers(values: set[int]) -> str:
    return ", ".join(str(value) for value in sorted(value for value in values if value))


_FIGURES: Mapping[PatternId, Callable[[tuple[CompiledKernel, ...]], list[str]]] = {
    "tma-pipeline": _tma,
    "warp-specialization": _roles,
    "cluster-communication": _clusters,
    "epilogue": _stores,
    "register-accumulators": _sums,
}
