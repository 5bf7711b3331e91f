"""Drop-in for FlashInfer's MLA wrapper (plan and run), on our kernels for a paged KV cache."""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch

from mla_var3.errors import CallError
from mla_var3.serving import checks, kinds, operators
from mla_var3.serving.checks import require
from mla_var3.serving.kinds import LATENT, ROPE


class BatchMLAPagedAttentionWrapper:
    """Latent attention of a batch over pages: planned once per step, run once per layer.

    Args:
        float_workspace_buffer: Not needed: a call takes its workspace from torch's allocator.
        use_cuda_graph: Whether ``run`` may be captured: plans then write where the first one did,
            and a later plan must not need more pages per sequence than ``kv_indices`` has room for.
        kv_indices: FlashInfer's buffer of page indices; its size is the capacity under capture.
    """

    def __init__(
        self,
        float_workspace_buffer: torch.Tensor,
        use_cuda_graph: bool = False,
        qo_indptr: torch.Tensor | None = None,
        kv_indptr: torch.Tensor | None = None,
        kv_indices: torch.Tensor | None = None,
        kv_len_arr: torch.Tensor | None = None,
        backend: str = "auto",
    ) -> None:
        self._device = float_workspace_buffer.device
        self._fixed = use_cuda_graph
        self._capacity = kv_indices.numel() if kv_indices is not None else None
        self._plan: tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None = None

    def plan(
        self,
        qo_indptr: torch.Tensor,
        kv_indptr: torch.Tensor,
        kv_indices: torch.Tensor,
        kv_len_arr: torch.Tensor,
        num_heads: int,
        head_dim_ckv: int,
        head_dim_kpe: int,
        page_size: int,
        causal: bool,
        sm_scale: float,
        q_data_type: torch.dtype,
        kv_data_type: torch.dtype,
        use_profiler: bool = False,
        *,
        lse_mode: str = "base2",
        **_: Any,
    ) -> None:
        """Say which pages hold which tokens; makes the schedule of the step.

        Args:
            qo_indptr: First row of each sequence's queries, and one past the last; equally many.
            kv_indptr: First of each sequence's pages in ``kv_indices``, and one past the last.
            kv_indices: Pages.
            kv_len_arr: Keys of each sequence.
            num_heads: Query heads.
            head_dim_ckv: 512.
            head_dim_kpe: 64, or 0.
            page_size: Keys of a page.
            causal: Bottom-right aligned mask.
            sm_scale: Softmax scale.
            q_data_type: bfloat16 or float16.
            kv_data_type: The same.
            use_profiler: Must be false.
            lse_mode: ``base2`` or ``basee``.

        Raises:
            CallError: An argument does not fit; says which, and what does.
        """
        require(head_dim_ckv == LATENT, f"head_dim_ckv={head_dim_ckv}: {LATENT} is what there is")
        require(head_dim_kpe in (0, ROPE), f"head_dim_kpe={head_dim_kpe}: {ROPE} or 0 is needed")
        require(q_data_type == kv_data_type, f"queries are {q_data_type}, and keys {kv_data_type}")
        require(q_data_type in checks.DTYPES, f"{q_data_type} is neither bfloat16 nor float16")
        require(not use_profiler, "use_profiler=True: these kernels have no profiler inside")
        rows, starts = qo_indptr.tolist(), kv_indptr.tolist()
        counts = {b - a for a, b in itertools.pairwise(rows)}
        require(
            len(counts) == 1,
            f"qo_indptr gives sequences {', '.join(map(str, sorted(counts)))} queries, and all "
            "must have equally many",
        )
        self._queries, self._heads = counts.pop(), num_heads
        self._causal, self._scale, self._base2 = causal, sm_scale, lse_mode == "base2"
        self._page, self._rope = page_size, head_dim_kpe
        pages = max(b - a for a, b in itertools.pairwise(starts))
        kinds.box_of(page_size, 1, pages == 1)
        table = self._table(kv_indptr.to(self._device), kv_indices.to(self._device), max(pages, 1))
        lengths = kv_len_arr.to(self._device, torch.int32)
        self._keep(table, lengths, num_heads * self._queries)

    def _table(self, starts: torch.Tensor, pages: torch.Tensor, width: int) -> torch.Tensor:
        """The pages of each sequence in a row, [b, width]; what lies past the last is not read."""
        place = torch.arange(width, device=self._device)
        at = starts[:-1, None] + place[None]
        if not len(pages):
            return torch.zeros_like(at, dtype=torch.int32)
        return pages[at.clamp_(max=len(pages) - 1)].to(torch.int32)

    def _keep(self, table: torch.Tensor, lengths: torch.Tensor, rows: int) -> None:
        """Keep what a run needs, under capture where the first plan has put it."""
        if not (self._fixed and self._plan):
            if self._fixed and self._capacity:
                wide = table.new_zeros(
                    len(table), max(self._capacity // len(table), table.shape[1])
                )
                wide[:, : table.shape[1]] = table
                table = wide
            self._plan = table, lengths.clone(), operators.even_schedule(lengths, rows)
            return
        kept, old, cuts = self._plan
        b, width = kept.shape
        if len(table) != b or table.shape[1] > width:
            raise CallError(
                f"a captured run has room for {b} sequences of {width} pages, and the plan has "
                f"{len(table)} of {table.shape[1]}"
            )
        kept[:, : table.shape[1]].copy_(table)
        old.copy_(lengths)
        cuts.copy_(operators.even_schedule(old, rows))

    def run(
        self,
        q_nope: torch.Tensor,
        q_pe: torch.Tensor,
        ckv_cache: torch.Tensor,
        kpe_cache: torch.Tensor,
        out: torch.Tensor | None = None,
        lse: torch.Tensor | None = None,
        return_lse: bool = False,
        **_: Any,
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """Attention.

        Args:
            q_nope: [rows, h, 512].
            q_pe: [rows, h, 64], or 0 wide.
            ckv_cache: [pages, page, 512].
            kpe_cache: [pages, page, 64], or 0 wide.
            out: Where the output goes; a tensor of its own unless given.
            lse: Where the LSE goes, likewise.
            return_lse: Whether to return it.

        Returns:
            o [rows, h, 512]; with ``return_lse`` the LSE as well, [rows, h].

        Raises:
            CallError: There is no plan, or an argument does not fit it.
        """
        if self._plan is None:
            raise CallError("run() needs a plan(), and there is none")
        table, lengths, cuts = self._plan
        sizes = (len(lengths), self._queries, self._heads)
        rows = sizes[0] * sizes[1]
        require(
            q_nope.shape == (rows, self._heads, LATENT),
            f"q_nope is {tuple(q_nope.shape)}, and by its plan {(rows, self._heads, LATENT)}",
        )
        require(
            ckv_cache.ndim == 3 and ckv_cache.shape[1:] == (self._page, LATENT),
            f"ckv_cache is {tuple(ckv_cache.shape)}, and by its plan pages are {self._page} long",
        )
        if self._rope == 0:  # Past the end of what there is, loads give zeros.
            q_pe = q_nope.new_zeros(1, 1, ROPE).expand(rows, self._heads, ROPE).contiguous()
            kpe_cache = ckv_cache.new_zeros(1, 1, ROPE)
        for name, x, width in (
            ("q_nope", q_nope, LATENT), ("q_pe", q_pe, ROPE),
            ("ckv_cache", ckv_cache, LATENT), ("kpe_cache", kpe_cache, ROPE),
        ):  # fmt: skip
            checks.rows(name, x, width)
        checks.together(q_nope, {"ckv_cache": ckv_cache, "kpe_cache": kpe_cache, "the plan": table})
        out = torch.empty_like(q_nope) if out is None else out
        shape = q_nope.shape[:2]
        sums = q_nope.new_empty(shape, dtype=torch.float32) if lse is None else lse
        checks.rows("out", out, LATENT)
        operators.paged_decode(
            *(x.unflatten(0, sizes[:2]) for x in (q_nope, q_pe)), ckv_cache, kpe_cache,
            table, lengths, cuts, out.unflatten(0, sizes[:2]),
            sums.unflatten(0, sizes[:2]).transpose(1, 2),
            self._scale, self._causal, self._base2, -math.inf,
        )  # fmt: skip
        return (out, sums) if return_lse else out
