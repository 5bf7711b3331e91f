"""``RopeKernel``: per-head attention on decompressed keys, with one rotary key for all heads.

Launches the ping-pong kernel of ``turns`` on q, qpe, key, value and kpe, and writes o and its LSE
for each split of the keys. Plans launch it as it is; designs subclass it.
"""

from __future__ import annotations

import cuda.bindings.driver as cuda
import cutlass.cute as cute
from cutlass import Float32

from mla_var3.kernel.cute_python.kit.head_tiles import by_group, sums_by_group
from mla_var3.kernel.cute_python.kit.turns import TurnKernel


class RopeKernel(TurnKernel):
    """Attention by heads whose queries and keys come in two parts; the rotary keys serve all heads.

    Several sequences may attend the same keys: the members of a group.
    """

    #: What sequences of may lie apart.
    apart = ("key", "value")

    @cute.jit
    def __call__(
        self,
        q: cute.Tensor,
        qpe: cute.Tensor,
        key: cute.Tensor,
        value: cute.Tensor,
        kpe: cute.Tensor,
        o: cute.Tensor,
        lse: cute.Tensor,
        scale_log2: Float32,
        stream: cuda.CUstream,
    ):
        """Launch.

        Args:
            q: [b,h,s,128].
            qpe: [b,h,s,64].
            key: [groups,n,h,128].
            value: [groups,n,h,128].
            kpe: [groups,n,64], of all heads.
            o: Partial results [splits*b,h,s,128].
            lse: Their LSE [splits*b,h,s].
            scale_log2: Softmax scale over ln 2.
            stream: Where to launch.
        """
        views = self.views(q, qpe, key, value, kpe, o, lse)
        self.start(*views, scale_log2, stream)

    def views(self, q, qpe, key, value, kpe, o, lse):
        """The tensors as ``prepare`` takes them."""
        groups, keys, width = kpe.shape
        shared = cute.make_layout((keys, width, 1, groups), stride=(width, 1, 0, keys * width))
        by_head = [
            cute.make_tensor(x.iterator, cute.select(x.layout, mode=[1, 3, 2, 0]))
            for x in (key, value)
        ]
        outputs = groups * (o.shape[0] // q.shape[0])
        return (
            (by_group(q, groups), by_group(qpe, groups)),
            (by_head[0], cute.make_tensor(kpe.iterator, shared)),
            by_head[1],
            (by_group(o, outputs), sums_by_group(lse, outputs)),
        )
