"""Table of symptoms, the metrics that confirm each, and the patterns that help, ranked by arch.

A symptom is a few metrics. Its remedies are the patterns with a trigger on one of them, so that a
new page joins the diagnosis by its front matter alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from mla_var3.evidence.compare import NOISE
from mla_var3.knowledge import evidence
from mla_var3.knowledge.history import Gain
from mla_var3.knowledge.metrics import Metric
from mla_var3.knowledge.pages import Catalogue, Document
from mla_var3.knowledge.schema import PairEvidence, RecordEvidence
from mla_var3.languages import languages


@dataclass(frozen=True)
class Symptom:
    """What a reader sees, and what to look at to be sure.

    Attributes:
        key: Name of its page.
        title: As the reader would say it.
        meaning: What happens in the hardware, in one or two sentences.
        metrics: What shows it, by the names of the metrics catalogue; the first tells most.
        mode: The mode whose run states them.
        words: Other words by which readers look for it.
        more: The page of ``docs/messages`` that tells its causes apart.
        tricks: The pattern and the heading of its section that lists all that was tried.
        cases: What a reader may know of the case, with the pattern that helps in it.
    """

    key: str
    title: str
    meaning: str
    metrics: tuple[str, ...]
    mode: Literal["static", "event", "ncu", "disabled"]
    words: tuple[str, ...] = ()
    more: str = ""
    tricks: tuple[str, str] | None = None
    cases: tuple[tuple[str, str], ...] = ()

    def remedies(self, catalogue: Catalogue) -> list[Document]:
        """The patterns that a metric of the symptom leads to."""
        wanted = set(self.metrics)
        return [
            page
            for page in catalogue.patterns
            if wanted & {trigger.metric for trigger in page.pattern.triggers}
        ]


SYMPTOMS = (
    Symptom(
        "register-spills",
        "My kernel spills registers",
        "Values that a thread cannot keep in its registers, 255 at most, go to local memory and "
        "come back; in the loop they do so on every step. Results stay right, and nothing warns. "
        "An output tile of 64 rows by 512 columns in fp32, as of latent attention, has 32,768 "
        "values: over 128 threads 256 registers each, one more than there are; over 256 threads "
        "128.",
        ("spill_instructions", "stack_bytes", "local_memory_bytes"),
        "static",
        (
            "register spill",
            "local memory traffic",
            "stack frame",
            "too many registers",
            "kernel slow though results are right",
            "does my kernel spill",
            "spill loads in the main loop",
            "64x512 accumulator",
            "255 registers per thread",
            "stack bytes in a static compile",
            "local memory in the profile",
            "how to get rid of spills",
        ),
        "register-spill",
    ),
    Symptom(
        "slow-tensor-path",
        "The tensor cores idle, or run on the slow path",
        "Matrix products take an older instruction, or none of the tensor cores, or wait for "
        "something else most of the time.",
        (
            "mma_path",
            "path_loss",
            "wide_operands",
            "wgmma_serialized",
            "tensor_pipe_percent",
            "shared_rows",
            "tile_m",
        ),
        "static",
        (
            "low tensor core utilization",
            "tensor pipe idle",
            "HMMA in place of HGMMA",
            "tensor cores idle",
            "tensor cores not used",
            "tensor pipe at 30 percent",
            "FMA in place of tensor cores",
            "far from peak TFLOPS",
            "matrix product slow",
            "mma.sync in place of wgmma",
            "products one after the other",
            "compute bound but slow",
            "low TFLOPS",
        ),
    ),
    Symptom(
        "empty-gpu",
        "The grid does not fill the GPU, or its last wave is nearly empty",
        "Multiprocessors wait while a few blocks finish.",
        ("sms_covered", "idle_loss", "waves", "last_wave_fill", "side_by_side"),
        "static",
        (
            "low SM utilization",
            "too few blocks",
            "tail wave",
            "tail effect",
            "SMs are idle",
            "small batch is slow",
            "a handful of SMs do anything",
            "few SMs busy",
            "one user with a long context",
            "batch 1 and a long context",
            "most SMs idle at batch 1",
            "GPU utilization low in attention",
            "fewer blocks than SMs",
            "last wave nearly empty",
            "1 request does not fill the GPU",
            "adding requests costs no time",
            "long prompt one user slow decode",
            "more SMs than blocks",
        ),
        cases=(
            (
                "One or a few sequences with a long context: far fewer blocks than SMs",
                "o16-split-kv",
            ),
            ("About half of the SMs have a block each", "cute-split-keys-in-cluster"),
            ("Several waves, the last one nearly empty", "cute-persistent-tiles"),
            ("Two kernels at a time, one of which waits", "a3-underfilled-concurrency"),
        ),
    ),
    Symptom(
        "one-block-per-sm",
        "One block fits a multiprocessor, and its warps wait",
        "No other block runs while its warps wait for memory, for a barrier or for their results.",
        ("eligible_warps", "ring_depth", "blocks_per_sm", "occupancy_limiter", "registers"),
        "ncu",
        (
            "low occupancy",
            "occupancy limiter",
            "occupancy 12 percent",
            "one block per SM",
            "warps wait for memory",
            "few eligible warps",
            "how to raise occupancy",
            "no eligible warp",
            "latency bound kernel",
            "issue slots empty",
        ),
    ),
    Symptom(
        "cache-read-again",
        "The cache of keys is read more often than once",
        "Each head or tile of queries reads the same keys again, from DRAM or from the L2. Sharing "
        "loads brings nothing where no warp waits for the L2, as where the tiles stay in it.",
        (
            "reload_loss",
            "load_loss",
            "loaded_over_least",
            "tma_multicast",
            "tile_fill",
            "l2_hit_percent",
            "dram_percent",
            "bytes_over_l2",
        ),
        "ncu",
        (
            "memory bound",
            "memory bound but slow",
            "far below peak bandwidth",
            "memory bound but not at the bandwidth",
            "half of the peak bandwidth",
            "low L2 hit rate",
            "bound by L2 traffic",
            "keys read several times",
            "KV cache read more than once",
            "DRAM traffic too high",
            "reads more bytes than needed",
            "L2 hit rate low",
            "every head loads the same keys",
            "bandwidth 40 percent of peak",
            "loads several times the minimum",
            "bandwidth bound decode",
        ),
    ),
    Symptom(
        "no-tma",
        "Loads do not use TMA",
        "Threads compute addresses and move data that the copy engine could bring.",
        ("tma_loads",),
        "static",
        (
            "uncoalesced loads",
            "LDG in place of UTMALDG",
            "why is TMA not used",
            "copy without a TMA atom",
            "TMA not used",
            "cp.async in place of TMA",
            "threads compute addresses",
            "no bulk copies in SASS",
            "make loads use TMA",
            "LDG in the loop",
        ),
    ),
    Symptom(
        "memory-access",
        "Accesses are uncoalesced, or hit one bank",
        "Threads of a warp touch more sectors of memory than their bytes fill, or several words of "
        "one bank of shared memory, which answers them one after the other.",
        ("conflict_share", "excess_sector_share"),
        "disabled",
        (
            "bank conflicts",
            "uncoalesced access",
            "excessive sectors",
            "shared memory conflicts",
            "bank conflicts in shared memory",
            "strided access",
            "threads read far apart",
            "sectors per request above 4",
            "shared memory wavefronts",
            "column access of a tile",
            "transpose is slow",
        ),
    ),
    Symptom(
        "causal-mask",
        "The causal mask costs as much as no mask",
        "Tiles above the diagonal are computed and thrown away, or every tile pays for the mask.",
        ("causal",),
        "event",
        (
            "causal mask is slow",
            "causal should be twice as fast",
            "causal as slow as full attention",
            "masked tiles are computed",
            "prefill mask overhead",
            "half of the work thrown away",
            "no speedup from causal",
        ),
    ),
    Symptom(
        "softmax-bound",
        "Instructions other than products take the time",
        "Exponentials, conversions and rescaling keep the schedulers busy while the tensor cores "
        "wait.",
        ("issue_active_percent",),
        "ncu",
        (
            "exponentials dominate",
            "softmax is the bottleneck",
            "tricks for the softmax",
            "rescaling takes the time",
            "softmax takes longer than products",
            "exp is the bottleneck",
            "too many instructions besides mma",
            "schedulers busy tensor cores wait",
            "MUFU busy",
            "conversion instructions dominate",
            "issue slots busy",
            "overlap softmax with matrix products",
        ),
        tricks=("cute-lazy-maximum", "All tricks for the softmax between products"),
    ),
    Symptom(
        "wrong-result",
        "The result is wrong, or only sometimes right",
        "What a kernel reads beyond a tile's end is not defined, or a wait is missing: a race.",
        ("max_relative_error",),
        "disabled",
        (
            "NaN",
            "wrong numbers",
            "race",
            "wrong output",
            "results differ between runs",
            "nan in the output",
            "wrong at some sizes",
            "output is garbage",
            "does not match the reference",
            "sometimes right sometimes wrong",
            "passes small tests only",
            "nondeterministic result",
        ),
        "wrong-numbers",
    ),
    Symptom(
        "times-vary",
        "Times vary from run to run",
        "Host work, compilation or a warm cache is timed together with the kernel; or power, "
        "clocks and other users of the GPU change it. Medians of one run that differ by less than "
        f"{NOISE:.1%} are a tie; times of two runs do not compare.",
        ("time_spread", "l2_flushed"),
        "event",
        (
            "noisy timing",
            "benchmark jitter",
            "clock drops",
            "benchmark gives different times",
            "is 2 percent a real difference",
            "first run slow",
            "warm cache in a benchmark",
            "timing not reproducible",
            "GPU throttles",
            "compile time in the measurement",
            "same kernel other time",
        ),
        "times-vary",
    ),
)


def find(metrics: Iterable[str]) -> list[Symptom]:
    """The symptoms that any of the metrics shows, in their order."""
    wanted = set(metrics)
    return [symptom for symptom in SYMPTOMS if wanted & set(symptom.metrics)]


def archs() -> list[str]:
    """The archs that a diagnosis tells apart: those that a language compiles for by itself."""
    found = {arch for language in languages().values() for arch in language.archs}
    return sorted(found, key=lambda arch: (len(arch), arch))


_IMPACTS = ("high", "medium", "low")


def ranked(
    pages: Iterable[Document], arch: str, catalogue: Catalogue, gains: dict[str, list[Gain]]
) -> list[Document]:
    """Remedies that hold on an arch: what was seen to help there first, then by measured gain.

    Args:
        pages: Patterns.
        arch: Such as ``sm_90``.
        catalogue: Where records are read from.
        gains: What pages brought here; see ``history.gains``.
    """
    held = [page for page in pages if arch in page.pattern.archs]
    return sorted(held, key=lambda page: _rank(page, arch, catalogue, gains))


def _rank(
    page: Document, arch: str, catalogue: Catalogue, gains: dict[str, list[Gain]]
) -> tuple[bool, float, int, bool]:
    meta = page.pattern
    most = max(factors(page, arch, catalogue, gains), default=1.0)
    seen = bool(pairs_on(page, arch, catalogue))
    return not seen, -most, _IMPACTS.index(meta.impact), meta.kind != "optimization"


def factors(
    page: Document, arch: str, catalogue: Catalogue, gains: dict[str, list[Gain]]
) -> list[float]:
    """By how much a page made a kernel faster: in steps of designs, and in its own evidence there.

    A step took place at the sizes that its two versions were timed at; the evidence may be of the
    case that the page is for, where it brings much more.
    """
    found = [gain.factor for gain in gains.get(page.pattern.id, ())]
    for pair in pairs_on(page, arch, catalogue):
        times = (c for c in evidence.compare(pair, catalogue) if c.after.metric.name == "total_us")
        found += [change.ratio for change in times if change.ratio]
    return sorted(found)


def pairs_on(page: Document, arch: str, catalogue: Catalogue) -> Sequence[PairEvidence]:
    """The pairs of records by which a page proves itself on an arch."""
    pairs = [item for item in page.pattern.evidence if isinstance(item, PairEvidence)]
    return [pair for pair in pairs if catalogue.record(pair.before).arch == arch]


def records_on(page: Document, arch: str, catalogue: Catalogue) -> Sequence[RecordEvidence]:
    """The single records by which a page proves itself on an arch."""
    single = [item for item in page.pattern.evidence if isinstance(item, RecordEvidence)]
    return [item for item in single if catalogue.record(item.record).arch == arch]


def shown(item: RecordEvidence, names: Iterable[str], catalogue: Catalogue) -> str:
    """What a record states of the metrics named: ``0 instructions, 16 rows by 64 keys``."""
    wanted = set(names)
    read = [r for r in evidence.readings(item, catalogue) if r.metric.name in wanted]
    said = [_named(reading.metric, reading.metric.text(reading.value)) for reading in read]
    return ", ".join([*said, item.note or ""]).rstrip(", ") if said else ""


def change(pair: PairEvidence, names: Iterable[str], catalogue: Catalogue) -> str:
    """What a pair moved, of the metrics named: ``1,218 to 0 spill instructions``."""
    wanted = [*names, "duration_us", "total_us"]
    said = []
    for found in evidence.compare(pair, catalogue):
        name = found.after.metric.name
        if name not in wanted:
            continue
        if found.after.metric.origin == "time":
            said.append(evidence.change_text(found.after.metric, found.ratio))
        else:
            values = [one.metric.text(one.value) for one in (found.before, found.after)]
            said.append(_named(found.after.metric, " to ".join(values)))
    return ", ".join(said)


def _named(metric: Metric, said: str) -> str:
    """What is said of a metric, with its name where numbers alone would not tell."""
    return f"{metric.name} {said}" if re.fullmatch(r"[\d.,]+(?: to [\d.,]+)?", said) else said
