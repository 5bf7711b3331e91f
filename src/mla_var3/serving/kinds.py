"""Table of serving kernel variants: which are compiled, and which one a call's sizes select."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from mla_var3.errors import CallError

if TYPE_CHECKING:
    import torch

#: Rows (head, query) of a tile, keys of a tile, columns of a worker's row of a schedule.
ROWS, KEYS, COLUMNS = 64, 64, 8
#: Widths of the latent and of the rotary part.
LATENT, ROPE = 512, 64
#: log2 by which a row's maximum may lag behind: weights of up to 2**8 are as exact as those below.
LAZY = 8.0
LN_2 = 0.6931471805599453
#: fp32 values of half a part (64 maxima and sums, 64 x 256 values), and signals that it has come.
PLACE, SIGNALS = 2 * ROWS + ROWS * LATENT // 2, 4
#: Rows that are columns of the products rather than rows: so few that most of a tile were padding.
COLUMNS_OF_FEW = (16, 32)
#: Tiles that a merge of few parts takes as long as, and CTAs with which it takes one more: on an
#: H200, 2026-11-27, merges of 4 to 132 parts took 9 to 17 us, a tile 1.7.
MERGE, MERGE_CTAS = 5, 25
#: Page sizes below a tile that a load takes whole.
SMALL_PAGES = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True)
class Kind:
    """A kernel.

    Attributes:
        name: ``schedule``, ``attention``, ``lists`` or ``prefill``.
        dtype: Of queries and cache; none of a schedule.
        share: CTAs that share keys.
        box: Keys that one load takes.
        lazy: log2 by which a row's maximum may lag behind.
        form: Of ``lists`` and ``prefill``, what tokens are and where their lists come from; of a
            schedule, whether it is one of lists.
        columns: Rows that are columns of the products; 0 where they are rows.
        single: Keys that one load of the row tile takes that has no other to share its keys with;
            0 where there is none.
    """

    name: str
    dtype: str = ""
    share: int = 0
    box: int = 0
    lazy: float = 0.0
    form: str = ""
    columns: int = 0
    single: int = 0

    @property
    def key(self) -> str:
        """Name of its library."""
        parts = [
            self.dtype,
            f"columns{self.columns}" * (self.columns > 0),
            f"share{self.share}" * (self.share > 0),
            f"box{self.box}" * (self.box > 0),
            f"single{self.single}" * (self.single > 0),
            self.form,
        ]
        return "-".join([self.name, *filter(None, parts)])

    @property
    def torch_dtype(self) -> torch.dtype:
        """The dtype itself."""
        import torch

        found: torch.dtype = getattr(torch, self.dtype)
        return found

    def tiling(self) -> dict[str, Any]:
        """What is compiled in, by name."""
        return asdict(self)


#: Of sequences, and of lists, whose parts cost otherwise.
SCHEDULE, LIST_SCHEDULE = Kind("schedule"), Kind("schedule", form="lists")


def groups_of(rows: int) -> tuple[int, int]:
    """CTAs that share keys, and groups of so many row tiles, for the rows of a sequence.

    Of an odd number of row tiles the last group has one, whose CTA shares its keys with none.
    """
    tiles = -(-rows // ROWS)
    share = min(tiles, 2)
    return share, -(-tiles // share)


def workers_of(rows: int, sms: int) -> int:
    """Parts that the work is cut into, so that each SM has one tile of rows of one of them."""
    return max(sms // -(-rows // ROWS), 1)


def queries_at_once(heads: int, sms: int) -> int:
    """Queries of a sequence whose tiles of rows each have an SM."""
    return max(sms // 2 * 2 * ROWS // heads, 1)


def tiles_of(rows: int, alone: bool = False) -> int:
    """Tiles of rows that a part has places for, of a sequence with so many rows."""
    share, groups = groups_of(rows) if not alone else (1, -(-rows // ROWS))
    return share * groups


def parts_of(n: int, heads: int, k: int, sms: int) -> int:
    """Parts that each of n lists of k tokens is cut into, where whole ones leave SMs idle.

    All CTAs run at once. A part has two tiles at least. A merge takes as long as some tiles, more
    of them the more CTAs leave parts, so that lists stay whole where parts save fewer.
    """
    rows, tiles = n * tiles_of(heads, alone=True), -(-k // KEYS)
    parts = min(sms // rows, tiles // 2)
    if parts < 2:
        return 1
    return parts if tiles - -(-tiles // parts) > MERGE + parts * rows // MERGE_CTAS else 1


def schedule_rows(rows: int, sms: int, alone: bool = False) -> int:
    """Rows of a schedule: one per part, then what CTAs tell each other, which is 0 between calls.

    Args:
        rows: Rows of a sequence.
        sms: SMs.
        alone: Whether no CTAs share keys.
    """
    return workers_of(rows, sms) * (1 + 2 * tiles_of(rows, alone))


def box_of(page: int, share: int, one_page: bool) -> int:
    """Keys that one load takes from pages of a size.

    Raises:
        CallError: Tiles of 64 keys cannot be cut from such pages.
    """
    if page % KEYS == 0 or one_page:
        return KEYS // share
    if page in SMALL_PAGES:
        return min(page, KEYS // share)
    sizes = ", ".join(map(str, SMALL_PAGES))
    raise CallError(f"page size {page} is neither one of {sizes} nor a multiple of {KEYS}")


def attention(dtype: str, rows: int, page: int, one_page: bool) -> Kind:
    """The kernel for so many rows of a sequence and pages of a size."""
    share, _ = groups_of(rows)
    box = box_of(page, share, one_page)
    columns = next((n for n in COLUMNS_OF_FEW if n >= rows), 0)
    if columns:
        return Kind("attention", dtype, share, box, columns=columns)
    single = box_of(page, 1, one_page) if -(-rows // ROWS) % share else 0
    return Kind("attention", dtype, share, box, LAZY, single=single)


#: Bytes of a token of a cache in fp8.
SPARSE_ROW = LATENT + 4 * 4 + 2 * ROPE
#: Bytes of a token whose rotary values count as values, and of those what lies in its row: past the
#: rows of a page are the scales of its tokens.
MODEL1, MODEL1_ROW = 584, 576
#: Tokens in the bytes of either cache, listed in two caches, or found by a page table.
FORMS = ("656", "656-second", "656-table", "584", "584-second")
#: Rows of 16-bit values, by their width; lists of these whole, or in parts.
ROW_FORMS = ("rows576", "rows576-parts", "rows512", "rows512-parts")


def lists(form: str) -> Kind:
    """The kernel for tokens of a form."""
    return Kind("lists", "bfloat16", 1, lazy=LAZY, form=form)


def prefill(form: str) -> Kind:
    """The kernel for lists of rows of 16-bit values."""
    return Kind("prefill", "bfloat16", 1, lazy=LAZY, form=form)


def every(dtypes: tuple[str, ...] = ("bfloat16", "float16")) -> list[Kind]:
    """All kernels that a call may take."""
    boxes = {
        share: sorted({KEYS // share, *(min(x, KEYS // share) for x in SMALL_PAGES)})
        for share in (1, 2)
    }
    attending = [
        Kind("attention", d, s, b, LAZY) for d in dtypes for s, bs in boxes.items() for b in bs
    ]
    pages = {(box_of(n, 2, False), box_of(n, 1, False)) for n in (*SMALL_PAGES, KEYS)}
    odd = [Kind("attention", d, 2, b, LAZY, single=n) for d in dtypes for b, n in sorted(pages)]
    few = [
        Kind("attention", d, 1, b, columns=n)
        for d in dtypes
        for n in COLUMNS_OF_FEW
        for b in boxes[1]
    ]
    listed = [*map(lists, FORMS), *map(prefill, ROW_FORMS)]
    return [SCHEDULE, LIST_SCHEDULE, *listed, *attending, *odd, *few]
