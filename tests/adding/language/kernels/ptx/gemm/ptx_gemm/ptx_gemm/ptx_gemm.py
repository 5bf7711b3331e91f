"""GEMM in PTX: a thread per element of the result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from mla_var3.languages.ptx.kernel import PtxKernel

from mla_var3.runtime import KernelPlan, RuntimeObject
from mla_var3.runtime.tiling import Tiling
from mla_var3.workloads.gemm import GemmProblem

if TYPE_CHECKING:
    import torch

#: The one launch.
STAGE = "gemm"


@dataclass(frozen=True, kw_only=True)
class Plan(GemmProblem, KernelPlan):
    """Problem and launch of this version."""

    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {STAGE: Tiling}

    def default_tiling(self, stage: str) -> Tiling:
        return Tiling()

    def _autotune_configs(self) -> dict[str, list[Tiling]]:
        return {STAGE: [Tiling()]}

    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        a, b = inputs
        c = self.empty_output(a.device)
        return PtxKernel(
            GEMM.replace("ELEMENT", {"bf16": "bf16", "fp16": "f16"}[self.dtype]),
            (self.n, self.k, self.m * self.n),
            self.m * self.n,
            input_tensors={"a": a, "b": b},
            output_tensors={"c": c},
            cost_fn=self._algorithmic_flops_bytes,
            _name=STAGE,
        )


#: Parameters a [m,k], b [n,k], c [m,n], then n, k and m * n.
GEMM = """
.version 8.0
.target sm_90
.address_size 64

.visible .entry gemm(
  .param .u64 a, .param .u64 b, .param .u64 c,
  .param .u32 n, .param .u32 k, .param .u32 total)
{
  .reg .pred %p<3>;
  .reg .b16 %h<4>;
  .reg .b32 %r<12>;
  .reg .f32 %f<4>;
  .reg .b64 %d<12>;
  mov.u32 %r0, %ctaid.x;
  mov.u32 %r1, %ntid.x;
  mov.u32 %r2, %tid.x;
  mad.lo.u32 %r3, %r0, %r1, %r2;
  ld.param.u32 %r4, [total];
  setp.ge.u32 %p0, %r3, %r4;
  @%p0 bra DONE;
  ld.param.u32 %r5, [n];
  ld.param.u32 %r6, [k];
  div.u32 %r7, %r3, %r5;
  rem.u32 %r8, %r3, %r5;
  ld.param.u64 %d0, [a];
  ld.param.u64 %d1, [b];
  ld.param.u64 %d2, [c];
  mul.wide.u32 %d3, %r7, %r6;
  shl.b64 %d3, %d3, 1;
  add.u64 %d4, %d0, %d3;
  mul.wide.u32 %d5, %r8, %r6;
  shl.b64 %d5, %d5, 1;
  add.u64 %d6, %d1, %d5;
  mov.f32 %f0, 0f00000000;
  mov.u32 %r9, 0;
STEP:
  ld.global.b16 %h0, [%d4];
  ld.global.b16 %h1, [%d6];
  cvt.f32.ELEMENT %f1, %h0;
  cvt.f32.ELEMENT %f2, %h1;
  fma.rn.f32 %f0, %f1, %f2, %f0;
  add.u64 %d4, %d4, 2;
  add.u64 %d6, %d6, 2;
  add.u32 %r9, %r9, 1;
  setp.lt.u32 %p1, %r9, %r6;
  @%p1 bra STEP;
  cvt.rn.ELEMENT.f32 %h2, %f0;
  mul.wide.u32 %d7, %r3, 2;
  add.u64 %d8, %d2, %d7;
  st.global.b16 [%d8], %h2;
DONE:
  ret;
}
"""
