"""Workload ``mla``, Multi-head Latent Attention: gathers its problems, cost models and regimes."""

from collections.abc import Mapping
from typing import Any

from mla_var3.devices import Ceilings
from mla_var3.workloads.base import (
    KEYS_PER_QUERY,
    AxisMetric,
    Regime,
    Workload,
    axis_metric,
)
from mla_var3.workloads.mla.costs import (
    FP8_GROUP,
    MIX,
    TIE,
    best_new_tokens,
    best_prefix_tokens,
    flash_attention_cost,
    flash_mla_cost,
    fp8_latent_cost,
    fp8_row_bytes,
    mixed_cost,
    paged_cost,
    paged_fp8_cost,
    prefix_cost,
    seen_pairs,
    sparse_cost,
)
from mla_var3.workloads.mla.crossover import dense_or_sparse_set
from mla_var3.workloads.mla.fp8 import Fp8LatentProblem, fp8_rows
from mla_var3.workloads.mla.fp8_pages import PagedFp8Problem
from mla_var3.workloads.mla.latent import LatentProblem, PagedLatentProblem
from mla_var3.workloads.mla.mixed import DecompressedProblem, MixedProblem
from mla_var3.workloads.mla.problems import MlaProblem, attention_reference
from mla_var3.workloads.mla.rows import SparseRowsProblem, rows_cost, sparse_prefill_set
from mla_var3.workloads.mla.serving import (
    FRESH,
    LATER,
    LENGTHS,
    THIRD,
    UNSEEN,
    ServingProblem,
    drawn_lengths,
    serving_set,
)
from mla_var3.workloads.mla.shared_prefix import SharedPrefixProblem
from mla_var3.workloads.mla.sparse import SparseLatentProblem

__all__ = [
    "FP8_GROUP",
    "LENGTHS",
    "MIX",
    "TIE",
    "WORKLOAD",
    "DecompressedProblem",
    "Fp8LatentProblem",
    "LatentProblem",
    "MixedProblem",
    "MlaProblem",
    "PagedFp8Problem",
    "PagedLatentProblem",
    "ServingProblem",
    "SharedPrefixProblem",
    "SparseLatentProblem",
    "SparseRowsProblem",
    "attention_reference",
    "best_new_tokens",
    "best_prefix_tokens",
    "dense_or_sparse_set",
    "drawn_lengths",
    "flash_attention_cost",
    "flash_mla_cost",
    "fp8_latent_cost",
    "fp8_row_bytes",
    "fp8_rows",
    "mixed_cost",
    "paged_cost",
    "paged_fp8_cost",
    "prefix_cost",
    "rows_cost",
    "seen_pairs",
    "serving_set",
    "sparse_cost",
    "sparse_prefill_set",
]

#: First query count of the speculative and of the prefill regime.
SPECULATIVE_FROM, PREFILL_FROM = 2, 128


def _shared_rows(problem: Mapping[str, Any]) -> int | None:
    h, s = problem.get("h"), problem.get("s")
    return h * s if isinstance(h, int) and isinstance(s, int) else None


def _old_tokens(problem: Mapping[str, Any]) -> int | None:
    t, n = problem.get("t"), problem.get("n")
    return t - n if isinstance(t, int) and isinstance(n, int) else None


def _least_us(problem: Mapping[str, Any], rates: Ceilings) -> float | None:
    """Least of all forms, whatever the cache holds; of a plain problem, without a mask."""
    from mla_var3.workloads.mla.regimes import Shape, bound_us

    other = ("causal", "page", "lengths", "topk", "shared")
    if any(problem.get(axis) for axis in other) or problem.get("dtype") not in ("bf16", "fp16"):
        return None
    sizes = {axis: problem[axis] for axis in ("b", "h", "d", "k", "p") if problem.get(axis)}
    return bound_us(Shape(**sizes), problem["s"], problem["t"], rates)


def _repeats(problem: Mapping[str, Any]) -> dict[str, bool]:
    """Keys always; sequences unless a stage joins them; heads unless they share their keys.

    Where the parts of the keys are left open, their number follows from the sequences.
    """
    joined = "n" in problem or "prefix" in problem or problem.get("splits", 1) is None
    return {"t": True} | ({} if joined else {"b": False}) | ({} if "k" in problem else {"h": False})


def _tile_intensity(problem: Mapping[str, Any], rows: int, columns: int) -> float | None:
    """Scores take a key's latent and rotary part, the output its latent part alone."""
    k, p = problem.get("k"), problem.get("p")
    if not isinstance(k, int) or not isinstance(p, int) or "n" in problem or "prefix" in problem:
        return None
    width = 1 if problem.get("dtype") == "fp8" else 2
    return rows * 2 * (2 * k + p) / ((k + p) * width)


def _scores(problem: Mapping[str, Any]) -> int | None:
    """Of problems whose keys all go one way."""
    if any(problem.get(axis) for axis in ("n", "prefix", "shared", "lengths", "topk")):
        return None
    pairs = seen_pairs(problem["s"], problem["t"], bool(problem.get("causal")))
    return int(problem["b"] * problem["h"] * pairs)


WORKLOAD = Workload(
    key="mla",
    title="MLA",
    summary="Attention over a compressed (latent) cache, over the decompressed one, or over both.",
    problem=MlaProblem,  # type: ignore[type-abstract]  # its designs add their own axes
    sweep="s",
    repeats=_repeats,
    sharing=lambda p: _shared_rows(p) if "k" in p else None,
    scores=_scores,
    outputs=lambda p: p["b"] * p["h"] * p["s"] * (p.get("d") or p["k"]),
    tile_intensity=_tile_intensity,
    compared=("b", "h", "s", "t", "dtype", "causal", "page", "lengths", "topk", "rows"),
    lighter=lambda p: bool(p.get("shared")),  # Tokens that sequences share are read once.
    regimes=(
        Regime("decode", "one query token", lambda p: p["s"] < SPECULATIVE_FROM),
        Regime("speculative", "2 to 127 query tokens", lambda p: p["s"] < PREFILL_FROM),
        Regime("prefill", "128 query tokens and more", lambda p: p["s"] >= PREFILL_FROM),
    ),
    peers={
        "deepseek_flash_mla": "FlashMLA",
        "deepseek_sparse_decode": "FlashMLA, sparse decode",
        "deepseek_sparse_prefill": "FlashMLA, sparse prefill",
        "flashinfer_mla": "FlashInfer",
        "tilegym_mla": "TileGym",
        "triton_mla": "Triton",
    },
    least_us=_least_us,
    sets={
        "serving": lambda: [problem.fields() for problem in serving_set()],
        "serving-fresh": lambda: [problem.fields() for problem in serving_set(FRESH)],
        "serving-unseen": lambda: [problem.fields() for problem in serving_set(UNSEEN)],
        "serving-later": lambda: [problem.fields() for problem in serving_set(LATER)],
        "serving-third": lambda: [problem.fields() for problem in serving_set(THIRD)],
        "dense-or-sparse": dense_or_sparse_set,
        "sparse-prefill": sparse_prefill_set,
    },
    metrics=(
        axis_metric("batch", "b", "Sequences in the batch."),
        axis_metric("heads", "h", "Query heads."),
        axis_metric("query_tokens", "s", "Query tokens per sequence: 1 when decoding."),
        axis_metric("context_tokens", "t", "Keys per sequence."),
        axis_metric("page_tokens", "page", "Keys of a page of the cache."),
        axis_metric("kept_tokens", "topk", "Tokens that a query token attends to."),
        axis_metric("lengths", "lengths", "How lengths of sequences differ.", "text"),
        axis_metric("new_tokens", "n", "Newest tokens kept decompressed by the mixed design."),
        axis_metric("shared_tokens", "shared", "First tokens that a group of sequences shares."),
        axis_metric("prefix_groups", "groups", "Groups of sequences, each with its own prefix."),
        axis_metric("latent_dim", "k", "Width of the compressed cache."),
        axis_metric("head_dim", "d", "Head dimension without the position part."),
        axis_metric("causal", "causal", "Whether the mask is causal.", "flag"),
        AxisMetric(
            "shared_rows",
            "Query rows of a sequence that read the same latent tile.",
            "problem.h * problem.s",
            _shared_rows,
        ),
        KEYS_PER_QUERY,
        AxisMetric(
            "old_tokens",
            "Tokens that the mixed design leaves latent.",
            "problem.t - problem.n",
            _old_tokens,
        ),
    ),
)
