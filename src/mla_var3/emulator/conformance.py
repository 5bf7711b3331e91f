"""NVIDIA's CuTe DSL examples under the emulator: which run, which are refused and why."""

from __future__ import annotations

import os
import re
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict

from mla_var3 import arguments, forked, inputs
from mla_var3.blobs import blob_of
from mla_var3.emulator.options import Options
from mla_var3.errors import EmulatorError, HyperMlaError
from mla_var3.paths import relative, write_atomic

if TYPE_CHECKING:
    from mla_var3.emulator.host import Emulation

SCHEMA = 1
FOLDER = Path("examples/python/CuTeDSL")
TARGET = Path("results/conformance/cutlass-examples.json")
#: Seconds after which an example is stopped.
LIMIT = 600.0
SM80, SM90, SM120 = "sm_80", "sm_90a", "sm_120a"


@dataclass(frozen=True)
class Example:
    """An example with the arguments of one run, small enough for a CPU."""

    path: str
    arch: str
    arguments: str = ""


def _all(folder: str, arch: str, *runs: str) -> list[Example]:
    """Runs such as ``dense_gemm/dense_gemm.py --mnkl 256,128,256,1`` below a folder."""
    return [Example(f"{folder}/{r.partition(' ')[0]}", arch, r.partition(" ")[2]) for r in runs]


EXAMPLES: list[Example] = [
    *_all(
        "cute/ampere/kernel",
        SM80,
        "elementwise/elementwise_add.py --M 64 --N 256",
        "elementwise/elementwise_add.py --M 60 --N 200",
        "elementwise/elementwise_apply.py --M 64 --N 256",
        "dense_gemm/sgemm.py --mnk 128,128,64",
        "dense_gemm/tensorop_gemm.py --mnkl 128,128,64,1",
        "dense_gemm/tensorop_gemm.py --mnkl 256,256,128,2",
        "attention/flash_attention_v2.py --batch_size 1 --seqlen_q 128 --seqlen_k 256 "
        "--num_head 1 --head_dim 64",
        "attention/flash_attention_v2.py --batch_size 1 --seqlen_q 128 --seqlen_k 256 "
        "--num_head 1 --head_dim 128 --is_causal",
        "attention/hstu_attention.py --batch_size 1 --seqlen_q 64 --seqlen_kv 64 --num_head 1 "
        "--head_dim 64",
    ),
    *_all("cute/ampere/tutorial", SM80, "elementwise_add_autotune.py --M 64 --N 256"),
    *_all(
        "cute/hopper/kernel/dense_gemm",
        SM90,
        "dense_gemm.py --mnkl 256,128,256,1",
        "dense_gemm.py --mnkl 200,136,72,1",
        "dense_gemm.py --mnkl 128,128,128,2 --a_major m --b_major n --c_major m",
        "dense_gemm.py --mnkl 256,256,256,1 --cluster_shape_mn 2,1",
        "dense_gemm.py --mnkl 256,256,128,1 --cluster_shape_mn 2,2",
        "dense_gemm.py --mnkl 256,256,128,1 --tile_shape_mn 128,256",
        "dense_gemm.py --mnkl 128,128,256,1 --a_dtype Float8E4M3FN --b_dtype Float8E4M3FN",
        "dense_gemm.py --mnkl 128,128,256,1 --a_dtype Float8E5M2 --b_dtype Float8E5M2",
        "dense_gemm.py --mnkl 128,128,128,1 --acc_dtype Float16",
        "dense_gemm.py --mnkl 128,128,128,1 --a_dtype Int8 --b_dtype Int8 --acc_dtype Int32 "
        "--c_dtype Int32",
        "dense_gemm_persistent.py --mnkl 512,256,128,1",
        "dense_gemm_persistent.py --mnkl 512,256,128,1 --cluster_shape_mn 2,1",
        "dense_gemm_fp8_2xacc.py --mnkl 128,128,256,1",
        "dense_gemm_fp8_gelu_persistent.py --mnkl 256,128,256,1",
    ),
    *_all(
        "cute/hopper/kernel/grouped_gemm",
        SM90,
        "grouped_gemm.py --num_groups 2 --problem_sizes_mnkl (128,128,128,1),(256,128,64,1)",
    ),
    *_all("cute/hopper/kernel/cta_norm", SM90, "cta_norm.py --M 8 --N 512"),
    *_all(
        "cute/hopper/kernel/attention",
        SM90,
        "fmha.py --q_shape 1,128,1,128 --k_shape 1,256,1,128",
        "fmha.py --q_shape 1,128,1,128 --k_shape 1,1024,1,128",
        "fmha.py --q_shape 1,128,1,128 --k_shape 1,256,1,128 --is_causal",
        "fmha.py --q_shape 1,128,4,128 --k_shape 1,256,2,128",
        "fmha.py --q_shape 1,200,1,128 --k_shape 1,200,1,128",
        "fmha.py --q_shape 1,128,1,64 --k_shape 1,256,1,64",
        "fmha.py --q_shape 1,128,1,64 --k_shape 1,256,1,64 --in_dtype Float8E4M3FN",
        "fmha.py --q_shape 1,128,1,128 --k_shape 1,256,1,128 --in_dtype Float8E4M3FN",
        "fmha.py --q_shape 1,256,2,128 --k_shape 1,256,2,128 --is_persistent",
    ),
    *_all(
        "cute/blackwell_geforce/kernel",
        SM120,
        "dense_gemm/dense_gemm.py --mnkl 128,128,128,1",
        "dense_gemm/dense_gemm.py --mnkl 256,256,64,1",
        "blockscaled_gemm/blockscaled_gemm_dispatch.py --mnkl 128,128,256,1",
        "blockscaled_gemm/dense_blockscaled_gemm_persistent_cooperative.py --mnkl 128,128,256,1",
        "blockscaled_gemm/dense_blockscaled_gemm_persistent_pingpong.py --mnkl 128,128,256,1",
    ),
    *_all("cute_ext/ampere", SM80, "memcpy_simt_universal_copy.py"),
    *_all("cute/tvm_ffi", SM90, "fp4_x2_tensor.py"),
    *_all(
        "dsl_tutorials",
        SM90,
        "call_bypass_dlpack.py",
        "call_from_jit.py",
        "cooperative_launch.py",
        "dataclass_immutable.py",
        "dynamic_smem_size.py",
        "inline_ptx.py",
        "launch_completion_and_programmatic_events.py",
        "programmatic_dependent_launch.py",
        "smem_allocator.py",
        "torch_fake_tensor.py",
        "tvm_ffi/ampere_gemm_with_fake_tensor.py",
        "tvm_ffi/compile_with_fake_tensor.py",
        "tvm_ffi/error_reporting.py",
        "tvm_ffi/jit_and_use_in_torch.py",
        "ffi/jit_argument.py",
    ),
    *_all(
        "experimental/primitives",
        SM90,
        "async_pipeline.py",
        "bar_warp_sync.py",
        "barrier_cta_red.py",
        "barrier_cta_sync.py",
        "basic_types.py",
        "cp_async_bulk.py",
        "cp_async_bulk_prefetch.py",
        "cp_async_mbarrier_arrive_cluster.py",
        "cp_async_mbarrier_arrive_cta.py",
        "cp_async_shared_global.py",
        "cp_async_shared_global_swizzled.py",
        "elect_sync.py",
        "ldmatrix_stmatrix.py",
        "mapa.py",
        "mbarrier.py",
        "mbarrier_lifecycle.py",
        "pipeline_software_fill.py",
        "red.py",
        "redux_sync.py",
        "shfl_sync.py",
        "vote_sync.py",
        "warp_named_barrier.py",
        "reduction/block_smem_reduce.py",
        "reduction/cluster_smem_reduce.py",
        "reduction/thread_vector_reduce.py",
        "reduction/warp_vector_reduce.py",
    ),
    *_all(
        "experimental/primitives/tma",
        SM90,
        "tma_1cta_mbarrier.py",
        "tma_load_store.py",
        "tma_load_to_ldmatrix.py",
        "tma_multicast.py",
        "tma_pipeline_count2.py",
        "tma_pipeline_pingpong.py",
        "tma_pipeline_single_warp.py",
        "tma_pipeline_warpspec.py",
        "tma_store.py",
        "tma_swizzle_modes.py",
        "tma_tensormap_replace.py",
    ),
    *_all(
        "experimental/primitives/tutorial",
        SM90,
        "01_hello_world.py",
        "02_naive_gemm.py",
        "03_gemm_tiled_smem.py",
        "04_tma_load.py",
        "06_softmax.py",
        "07_vectorized_array.py",
        "09_tma_4d_to_2d.py",
    ),
]


_ROUNDING = (
    "its check allows less than one rounding of float16, and sums are taken in another order here "
    "than in a tensor core: {said}"
)
#: Why an example ended as it did, in words: by path, and by kind of report or by status. What the
#: example itself said can stand in it.
ARGUED: dict[tuple[str, str], str] = {
    ("cute/hopper/kernel/attention/fmha.py", "race"): (
        "a race by the sources (lines 667 to 670): O lies over Q, and float16 O takes twice the "
        "bytes of float8 Q, so the first warpgroup's O covers the second one's Q, which no barrier "
        "guards; confirmed on an H200 on 2026-11-22: with the second warpgroup held back by 0.2 ms "
        "after its first step, 44 % of the outputs are wrong, and none with float16 input or "
        "without the delay"
    ),
    ("cute/blackwell_geforce/kernel/dense_gemm/dense_gemm.py", "race"): (
        "a race by the sources (lines 876 to 894): only warp 0 waits for its TMA store, and the "
        "others may write the buffer for the next tile of their CTA; not confirmed on hardware"
    ),
    ("dsl_tutorials/smem_allocator.py", "uninitialized-read"): (
        "true by the sources (lines 142 and 148): it prints what shared memory holds before it "
        "writes there; nothing else depends on it"
    ),
    ("experimental/primitives/tutorial/06_softmax.py", "race"): (
        "a race by the sources (lines 328 to 350): all threads read the maximum from slot 0, and "
        "warp 0 writes its sum there with no barrier in between; confirmed on an H200 on "
        "2026-11-22: with the other warps held back by 0.2 ms before that read its fourth kernel "
        "fails its own check, and without the delay it passes"
    ),
    ("experimental/primitives/tma/tma_pipeline_single_warp.py", "race"): (
        "a race by the sources (lines 166 to 214): with two stages and one prefetched, the fill of "
        "a step goes to the stage of the step before, which other warps may still read, since the "
        "barrier comes after the fill; confirmed on an H200 on 2026-11-22: with warps 1 to 3 held "
        "back by 0.2 ms after the barrier 37.5 % of the output is wrong, and nothing without"
    ),
    ("dsl_tutorials/call_bypass_dlpack.py", "failed"): _ROUNDING,
    ("dsl_tutorials/call_from_jit.py", "failed"): _ROUNDING,
    ("dsl_tutorials/tvm_ffi/ampere_gemm_with_fake_tensor.py", "failed"): _ROUNDING,
    ("dsl_tutorials/tvm_ffi/error_reporting.py", "failed"): (
        "it ends, as it is written to, with the error that it shows: {said}"
    ),
    ("dsl_tutorials/launch_completion_and_programmatic_events.py", "failed"): (
        "it captures a CUDA graph, and graphs are not emulated: {said}"
    ),
    ("dsl_tutorials/cooperative_launch.py", "refused"): (
        "it takes its memory from the CUDA runtime itself: {said}"
    ),
    ("dsl_tutorials/torch_fake_tensor.py", "refused"): (
        "its host function prints a tensor of the CPU, and every tensor is a GPU's here: {said}"
    ),
    ("dsl_tutorials/ffi/jit_argument.py", "failed"): (
        "it builds a C++ extension first, which needs CMake and packages of its own"
    ),
    ("experimental/primitives/tma/tma_multicast.py", "refused"): (
        "its copy signals a pair of CTAs (line 187), which sm_100 has and sm_90a does not: {said}"
    ),
}


class Finding(BaseModel):
    """A diagnostic of an example, short."""

    model_config = ConfigDict(extra="forbid")

    kind: str
    message: str
    at: str
    other: str | None = None


class Outcome(BaseModel):
    """What happened to one example.

    Attributes:
        status: ``passed`` its own checks and nothing was found; ``found``: it passed them and
            something was; ``refused``: it meets what is not emulated, or the DSL does not compile
            it; ``failed`` its own checks; ``slow``: stopped after the limit.
        reason: Why it did not pass, in one sentence.
        blob: Git's id of the example's file.
        seconds: Wall time of the example, with the DSL's compilation.
        emulated_seconds: Of these, in the emulator.
        clusters: Clusters that ran.
        instructions: Warp instructions.
    """

    model_config = ConfigDict(extra="forbid")

    example: str
    arch: str
    arguments: str
    status: Literal["passed", "found", "refused", "failed", "slow"]
    reason: str = ""
    blob: str = ""
    seconds: float
    emulated_seconds: float = 0.0
    clusters: int = 0
    instructions: int = 0
    findings: list[Finding] = []


class Table(BaseModel):
    """All examples of one tree."""

    model_config = ConfigDict(extra="forbid")

    schema_version: int = SCHEMA
    dsl: str
    cutlass: str
    memory_model: str
    schedules: int
    examples: list[Outcome]


@dataclass(frozen=True)
class Conformance:
    """Run NVIDIA's CuTe DSL examples and write a table of what happened to each.

    The table is written whenever an example ends, so that an interrupt loses none that ended.

    Attributes:
        cutlass: A checkout of NVIDIA/cutlass, or what ``examples fetch`` made.
        commit: Its commit, for the table; read from it by default.
        out: Where the table goes.
        only: Run the examples whose path contains this, and keep the rest of the table.
        resume: Keep what the table has of unchanged files, and run what is missing.
        memory_model: Assumptions about hardware.
        seeds: Schedules per example.
        workers: Examples at a time, each in a process of its own.
        limit: Seconds after which an example is stopped.
    """

    cutlass: Annotated[Path, arguments.named("--cutlass=DIR")] = Path("third_party/cutlass")
    commit: str = ""
    out: Path = TARGET
    only: str = ""
    resume: bool = False
    memory_model: Literal["default", "strict"] = "default"
    seeds: int = 1
    workers: int = 1
    limit: float = LIMIT


def main(argv: Sequence[str], prog: str) -> int:
    """Entry point of the command."""
    c: Conformance = arguments.parse(Conformance, argv, prog)
    root = c.cutlass.resolve() / FOLDER
    if not root.is_dir():
        raise EmulatorError(f"{c.cutlass} is not a checkout of NVIDIA/cutlass: it has no {FOLDER}")
    if c.workers < 1 or c.limit <= 0:
        raise EmulatorError(f"--workers={c.workers} and --limit={c.limit:g} must be positive")
    chosen = [e for e in EXAMPLES if c.only in f"{e.path} {e.arguments}"]
    if not chosen:
        raise EmulatorError(f"no example's path contains {c.only!r}")
    done = _kept(c, root)
    if c.resume:
        chosen = [e for e in chosen if (e.path, e.arch, e.arguments) not in done]
    for i, outcome in enumerate(examine_all(root, chosen, c), 1):
        done[_key(outcome)] = outcome
        print(
            f"[{i}/{len(chosen)}] {outcome.status:<8}{outcome.example} {outcome.arguments}: "
            f"{outcome.reason}",
            flush=True,
        )
        write(c.out, _table(c, done))
    print(f"{sum(o.status == 'passed' for o in done.values())} of {len(done)} pass; wrote {c.out}")
    return 0


def _key(o: Outcome) -> tuple[str, str, str]:
    return (o.example, o.arch, o.arguments)


def _kept(c: Conformance, root: Path) -> dict[tuple[str, str, str], Outcome]:
    """What the table has and is still true: the same DSL, memory model, schedules and files."""
    if not (c.only or c.resume) or not c.out.is_file():
        return {}
    table = read(c.out)
    made = (table.dsl, table.memory_model, table.schedules)
    if made != (version("nvidia-cutlass-dsl"), c.memory_model, c.seeds):
        return {}
    return {_key(o): o for o in table.examples if o.blob == _blob(root, o.example)}


def _blob(root: Path, path: str) -> str:
    return blob_of(root / path) or ""


def _table(c: Conformance, done: dict[tuple[str, str, str], Outcome]) -> Table:
    order = {(e.path, e.arch, e.arguments): i for i, e in enumerate(EXAMPLES)}
    known = sorted((k for k in done if k in order), key=order.__getitem__)
    return Table(
        dsl=version("nvidia-cutlass-dsl"),
        cutlass=c.commit or _commit(c.cutlass),
        memory_model=c.memory_model,
        schedules=c.seeds,
        examples=[done[k] for k in known],
    )


def _commit(folder: Path) -> str:
    """The commit that a fetched tree is stamped with, or that a checkout's HEAD names."""
    for place in (folder / ".commit", folder / ".git" / "HEAD"):
        if place.is_file():
            text = place.read_text(encoding="utf-8").strip()
            reference = folder / ".git" / text.removeprefix("ref: ")
            return reference.read_text(encoding="utf-8").strip() if reference.is_file() else text
    return "unknown"


def read(path: Path) -> Table:
    """The table in a file.

    Raises:
        EmulatorError: It cannot be read, or is no such table.
    """
    with inputs.faults_as(EmulatorError, relative(path), "the table"):
        return Table.model_validate(inputs.read_json(path))


def write(path: Path, table: BaseModel) -> None:
    """Write a table, whole or not at all."""
    write_atomic(path, table.model_dump_json(indent=1) + "\n")


def examine_all(root: Path, chosen: Sequence[Example], c: Conformance) -> Iterator[Outcome]:
    """Run examples, each in a process of its own, and give the outcomes as they end.

    Args:
        root: Folder of the examples.
        chosen: Which.
        c: How many at a time, for how long, under what.
    """
    _warm()
    work = {example: partial(_examine, root, example, c) for example in chosen}
    with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
        for example, end in forked.run(
            work, folder=Path(folder), workers=c.workers, timeout=c.limit, explain=_sentence
        ):
            facts = end.result or _lost(end)
            yield Outcome(
                example=example.path,
                arch=example.arch,
                arguments=example.arguments,
                blob=_blob(root, example.path),
                seconds=round(end.seconds, 1),
                **facts,
            )


def _lost(end: forked.Ended[dict[str, Any]]) -> dict[str, Any]:
    """Of an example that gave no answer."""
    return {"status": "slow" if end.late else "failed", "reason": end.failure}


def _warm() -> None:
    """Load what every example needs before it is forked."""
    import torch

    from mla_var3.emulator import host, script  # noqa: F401

    host.require_dsl()
    torch.set_num_threads(1)


def _examine(root: Path, example: Example, c: Conformance) -> dict[str, Any]:
    os.chdir(root)
    facts = _facts(example, c)
    facts["reason"] = facts.get("reason", "").replace(str(root), "")[:300]
    return facts


def _facts(example: Example, c: Conformance) -> dict[str, Any]:
    facts: dict[str, Any] = {"emulated_seconds": 0.0, "clusters": 0, "instructions": 0}
    findings: dict[tuple[str, str, str | None], Finding] = {}
    for seed in [None, *range(1, c.seeds)]:
        try:
            run = _run(example, c, seed)
        except (Exception, SystemExit) as error:  # noqa: BLE001  # Whatever an example raises is its outcome.
            return _ended(example, error)
        for launch in run.launches:
            facts["emulated_seconds"] += launch.seconds
            facts["clusters"] += launch.clusters
            facts["instructions"] += int(launch.counts.warps.sum())
        for d in run.diagnostics:
            at, other = str(d.at), str(d.other) if d.other else None
            findings[(d.kind, at, other)] = Finding(
                kind=d.kind, message=d.message, at=at, other=other
            )
    facts["emulated_seconds"] = round(facts["emulated_seconds"], 3)
    return facts | _verdict(example, facts["clusters"], list(findings.values()))


def _ended(example: Example, error: BaseException) -> dict[str, Any]:
    """Of an example that raised."""
    status, said = _status(error), _sentence(error)
    return {
        "status": status,
        "reason": ARGUED.get((example.path, status), "{said}").format(said=said),
    }


def _run(example: Example, c: Conformance, seed: int | None) -> Emulation:
    """One schedule of an example; beside others it keeps to one core."""
    from mla_var3.emulator.options import model
    from mla_var3.emulator.script import run_script

    jobs = 1 if c.workers > 1 else 0
    options = Options(model=model(c.memory_model), seed=seed, jobs=jobs)
    run = run_script(Path(example.path), example.arguments.split(), options, example.arch)
    if run.ended.error is not None:
        raise run.ended.error
    if run.ended.code:
        raise SystemExit(run.ended.code)
    return run


def _verdict(example: Example, clusters: int, findings: list[Finding]) -> dict[str, Any]:
    if not clusters:
        reason = "it launches no kernel through the DSL's host function"
        return {"status": "refused", "reason": reason}
    kinds = sorted({f.kind for f in findings})
    return {
        "findings": findings,
        "status": "found" if findings else "passed",
        "reason": "; ".join(ARGUED.get((example.path, k), f"{k}: not argued") for k in kinds),
    }


def _status(error: BaseException) -> str:
    if isinstance(error, HyperMlaError):
        return "refused"
    text = f"{type(error).__name__} {error}"
    compiler = re.search(
        r"DSL\w*Error|MLIRError|OpError|Diagnos|ImportError|ModuleNotFound|argparse|SystemExit",
        text,
    )
    return "refused" if compiler else "failed"


def _sentence(error: BaseException) -> str:
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", x).strip() for x in str(error).splitlines()]
    first = next((x for x in lines if x), "")
    differ = [
        re.sub(r" at index.*", "", x) for x in lines if re.match("Mismatched|Greatest abs", x)
    ]
    last = traceback.extract_tb(error.__traceback__)[-1:]
    where = f" ({Path(last[0].filename).name}:{last[0].lineno})" if last and not differ else ""
    return f"{type(error).__name__}: {'; '.join([first, *differ])}{where}"
