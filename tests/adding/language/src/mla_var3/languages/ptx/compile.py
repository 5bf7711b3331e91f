"""ptxas and the disassemblers: a kernel's cubin, its facts and its fingerprint."""

from __future__ import annotations

import tempfile
from pathlib import Path

from mla_var3.languages.ptx.facts import PtxFacts
from mla_var3.languages.ptx.kernel import BLOCK, PtxKernel

from mla_var3.evidence import Fingerprint
from mla_var3.evidence.fingerprint import digest
from mla_var3.languages.base import Compiled, CompileJob
from mla_var3.runtime.kernel import Kernel
from mla_var3.static import sass, tools
from mla_var3.static.elf import code_digest

CUBIN = "kernel.cubin"


def compile_one(job: CompileJob, timeout: float | None) -> Compiled:
    """The facts of one kernel, and its cubin unless ptxas refused it."""
    kernel = job.kernel
    assert isinstance(kernel, PtxKernel)
    ptxas = tools.locate("ptxas", "nvidia-cuda-nvcc")
    base = PtxFacts(
        kernel=kernel.function_name,
        arch=job.arch,
        toolchain={"ptxas": ptxas.version},
        ptx_lines=kernel.text.count("\n"),
    )
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = Path(folder, "kernel.ptx"), Path(folder, CUBIN)
        source.write_text(kernel.text, encoding="utf-8")
        done = tools.Runner().run(
            ptxas, [f"-arch={job.arch}", source, "-o", cubin], timeout=timeout
        )
        if done.returncode:
            said = tools.one_line(done.stderr)
            return Compiled(base.model_copy(update={"error": f"ptxas: {said}"}), {})
        return Compiled(_read(base, cubin), {CUBIN: cubin.read_bytes()})


def _read(base: PtxFacts, cubin: Path) -> PtxFacts:
    usage = tools.run(tools.disassembler("cuobjdump"), ["--dump-resource-usage", cubin])
    listing = tools.run(tools.disassembler("nvdisasm"), ["--print-code", cubin])
    (resources,) = sass.parse_resources(usage)
    instructions = sass.parse_listing(listing)
    mix = sass.instruction_mix(instructions)
    return base.model_copy(
        update={
            "registers": resources.registers,
            "stack_bytes": resources.stack_bytes,
            "shared_bytes": resources.shared_bytes,
            "spill_loads": mix.get("LDL", 0),
            "spill_stores": mix.get("STL", 0),
            "threads_per_block": BLOCK,
            "warps_per_block": BLOCK // 32,
            "instructions": len(instructions),
            "instruction_mix": mix,
            "mma_path": "FMA",
        }
    )


def fingerprint(kernel: Kernel, compiled: Compiled) -> Fingerprint:
    """What tells a launch of a compiled kernel from others."""
    assert isinstance(kernel, PtxKernel)
    tensors = [*kernel.input_tensors.values(), *kernel.output_tensors.values()]
    return Fingerprint(
        code=digest([code_digest(compiled.files[CUBIN])]),
        grid=kernel.grid(),
        block=(BLOCK,),
        scalars=tuple(map(str, kernel.scalars)),
        tensors=digest(f"{x.dtype} {tuple(x.shape)} {x.stride()}" for x in tensors),
    )
