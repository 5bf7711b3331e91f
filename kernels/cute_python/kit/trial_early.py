"""Trial consumers of sparse decode: weights handed over as soon as they are made."""
import cutlass, cutlass.cute as cute
from cutlass import Float32, Int32, const_expr, range_constexpr
from cutlass.cute.nvgpu import warpgroup
from mla_var3.kernel.cute_python.kit.handovers import Handover, arrive, sync
from mla_var3.kernel.cute_python.kit.list_window import ListWindowKernel, Model1Kernel
from mla_var3.kernel.cute_python.kit.products import RMEM, SMEM, accumulate
from mla_var3.kernel.cute_python.kit.rings import Free
from mla_var3.kernel.cute_python.kit.softmax import adopt_max, publish_max, rescale, store_weights
from mla_var3.kernel.cute_python.kit.warpgroups import Side


class Early:
    """Weights are handed over as soon as they are made."""
    def mark(self, wg, who, p):
        pass

    @cute.jit
    def left_any(self, wg, i, next_phase, paired, more):
        self.mark(wg, 0, 0)
        self.weigh(wg, 2 * i)
        publish_max(wg, Side.LEFT)
        store_weights(wg)
        cute.arch.fence_proxy("async.shared", space="cta")
        arrive(Handover.EVEN_WEIGHTS)
        self.mark(wg, 0, 1)
        rescale(wg.out, wg.shrink)
        accumulate(wg, RMEM, wg.weights, Side.LEFT)
        warpgroup.wait_group(0)
        self.mark(wg, 0, 2)
        if paired:  # else it is the output's way out
            self.release(wg, Free.EVEN_LEFT)
            sync(Handover.ODD_WEIGHTS)
            self.mark(wg, 0, 3)
            if const_expr(self.fenced):
                cute.arch.fence_proxy("async.shared", space="cta")
            adopt_max(wg, Side.RIGHT)
            rescale(wg.out, wg.shrink)
            accumulate(wg, SMEM, wg.peer_weights, Side.RIGHT)
            if more:
                self.scores(wg, Side.LEFT, self.orders[0][:self.near], True, next_phase, None)
                self.mark(wg, 0, 4)
                warpgroup.wait_group(self.near)
                self.release(wg, Free.ODD_LEFT)
                self.release(wg, Free.ODD_ROPE)
                self.scores(wg, Side.LEFT, self.orders[0][self.near:], False, next_phase, None)
                self.mark(wg, 0, 5)
                warpgroup.wait_group(0)
            else:
                warpgroup.wait_group(0)
                self.release(wg, Free.ODD_ROPE)
                wg.score.fill(0.0)  # else old ones would be kept for a tile that does not come
        else:
            wg.score.fill(0.0)
        if more:
            self.release(wg, Free.EVEN_ROPE)
        self.mark(wg, 0, 6)

    @cute.jit
    def take_even(self, wg):
        """Begin to add the even tile, of which the left side has made the weights."""
        sync(Handover.EVEN_WEIGHTS)
        if const_expr(self.fenced):  # it has taken over nothing itself
            cute.arch.fence_proxy("async.shared", space="cta")
        adopt_max(wg, Side.LEFT)
        rescale(wg.out, wg.shrink)
        accumulate(wg, SMEM, wg.peer_weights, Side.LEFT)

    @cute.jit
    def right_tiles(self, wg, even, odd, odds):
        if odd == 0:
            self.release(wg, Free.Q)
        for i in cutlass.range(odd, unroll=1):
            self.right_pair(wg, (odds + i) & 1, i + 1 < even, i + 1 == odd)
        if even > odd:
            self.right_alone(wg)

    @cute.jit
    def right_pair(self, wg, phase, more, last):
        self.mark(wg, 1, 0)
        self.take_even(wg)
        self.mark(wg, 1, 1)
        self.scores(wg, Side.RIGHT, self.orders[1][:self.near], True, phase, None)
        warpgroup.wait_group(self.near)
        self.release(wg, Free.EVEN_RIGHT)
        self.mark(wg, 1, 2)
        self.scores(wg, Side.RIGHT, self.orders[1][self.near:], False, phase, None)
        self.mark(wg, 1, 3)
        warpgroup.wait_group(0)
        if last:
            self.release(wg, Free.Q)
        self.mark(wg, 1, 4)
        self.weigh(wg, 1)
        publish_max(wg, Side.RIGHT)
        store_weights(wg)
        cute.arch.fence_proxy("async.shared", space="cta")
        arrive(Handover.ODD_WEIGHTS)
        self.mark(wg, 1, 5)
        rescale(wg.out, wg.shrink)
        accumulate(wg, RMEM, wg.weights, Side.RIGHT)
        warpgroup.wait_group(0)
        if more:  # else it is the output's way out
            self.release(wg, Free.ODD_RIGHT)
        self.mark(wg, 1, 6)

    @cute.jit
    def right_alone(self, wg):
        self.take_even(wg)
        warpgroup.wait_group(0)


class E656(Early, ListWindowKernel):
    pass


class E584(Early, Model1Kernel):
    pass
