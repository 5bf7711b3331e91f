import subprocess

import pytest

from mla_var3.errors import KnowledgeError
from mla_var3.examples import catalog
from mla_var3.examples.checklist import Source, checklist
from mla_var3.examples.model import CompiledKernel

SOURCE = """
import cutlass.cute as cute

class Thing:
    @cute.jit
    def __call__(self, a, stream):
        atom = cpasync.make_tiled_tma_atom(load, a)
        self.kernel(a).launch(cluster=(2, 1, 1))

    @cute.kernel
    def kernel(self, a):
        if warp_idx == self.tma_warp_id:
            cute.arch.setmaxregister_decrease(40)
            pipe.producer_tail(state)
        tile = scheduler.initial_work_tile_info()
        while tile.is_valid_tile:
            row_max = cute.math.exp2(row_max)
            scheduler.advance_to_next_work()
"""


def kernel(**figures):
    zero = dict.fromkeys(
        name for name, field in CompiledKernel.model_fields.items() if field.annotation is int
    )
    values = dict.fromkeys(zero, 0) | {"kernel": "kernel", "mma_path": "HGMMA"}
    return CompiledKernel(**(values | figures))


class TestChecklist:
    def test_entries_have_their_lines(self):
        found = {each.pattern: each for each in checklist(Source(SOURCE))}
        assert list(found) == [
            "tma-pipeline", "warp-specialization", "persistent-loop", "online-softmax",
            "pipeline-drain",
        ]  # fmt: skip
        assert found["tma-pipeline"].lines == (7,)
        assert found["pipeline-drain"].lines == (14,)
        assert set(found["persistent-loop"].lines) == {15, 16, 18}
        assert "`tma_warp_id`" in found["warp-specialization"].seen

    def test_figures_of_the_compiled_code_are_added(self):
        compiled = (
            kernel(pipeline_stages=4, mbarriers=8, blocks_per_cluster=2, threads_per_block=384,
                   register_budgets=("dec 40", "inc 232")),
        )  # fmt: skip
        found = {each.pattern: each.seen for each in checklist(Source(SOURCE), compiled)}
        assert "compiled: 4 stages; 8 mbarriers" in found["tma-pipeline"]
        assert "registers dec 40, inc 232, 384 threads" in found["warp-specialization"]

    def test_a_depth_that_is_not_known_is_left_out(self):
        for count, words in ((19, "19 mbarriers"), (1, "1 mbarrier")):
            found = checklist(Source(SOURCE), (kernel(mbarriers=count),))
            assert found[0].seen.endswith(f"; compiled: {words}")

    @pytest.mark.parametrize(
        "text", ["a_mcast_mask = make(mcast_mask)", "create_tma_multicast_mask(mcast_mode=1)",
                 "multicast_mask = make_layout_image_mask(a)"],
    )  # fmt: skip
    def test_a_multicast_mask_is_no_boundary(self, text):
        found = checklist(Source(text))
        assert [each.pattern for each in found] == ["cluster-communication"]

    def test_one_block_per_multiplication_is_no_cluster(self):
        assert checklist(Source("op = Op(tcgen05.CtaGroup.ONE)\n")) == ()
        (found,) = checklist(Source("op = Op(tcgen05.CtaGroup.TWO)\n"))
        assert found.pattern == "cluster-communication"
        assert found.seen == "two blocks on one multiplication (`CtaGroup.TWO`)"

    def test_a_store_that_the_dsl_chooses_is_not_called_stmatrix(self):
        (found,) = checklist(Source("atom = get_smem_store_op(layout)\n"))
        assert found.seen == "registers to shared memory (`get_smem_store_op`)"

    def test_the_tail_of_a_participant_drains(self):
        (found,) = checklist(Source("ab_producer.acquire()\nab_producer.tail()\n"))
        assert (found.pattern, found.lines) == ("pipeline-drain", (2,))

    def test_plain_code_shows_nothing(self):
        assert checklist(Source("x = 1\n")) == ()

    @pytest.mark.parametrize(
        ("text", "acts"),
        [("def f(): pass\nf()", True), ("def f(): pass\nif __name__ == '__main__':\n    f()", True),
         ("def f(): pass\nx = [f() for _ in 'ab']", True),
         ("def f(): pass\ndef g(): f()", False),
         ("import sys\nsys.path.insert(0, '.')\n", False)],
    )  # fmt: skip
    def test_what_runs_and_what_others_import(self, text, acts):
        assert Source(text).acts is acts

    def test_device_functions(self):
        assert Source(SOURCE).kernels == ("kernel",)


class TestCatalog:
    def test_every_python_file_is_an_entry(self, tree):
        found = {entry.name: entry for entry in catalog.entries(tree)}
        assert list(found) == [
            "ampere-scale-neighbour", "ampere-scale", "hopper-broken", "primitives-quiet",
        ]  # fmt: skip
        scale = found["ampere-scale"]
        assert (scale.arch, scale.category, scale.is_script) == ("sm_80", "ampere/scale", True)
        assert not found["ampere-scale-neighbour"].is_script

    def test_the_blob_is_gits(self, tree):
        entry = catalog.find(tree, "ampere-scale")
        told = subprocess.run(
            ["git", "hash-object", str(entry.file)], capture_output=True, text=True, check=True
        )
        assert entry.blob == told.stdout.strip()

    @pytest.mark.parametrize(
        ("text", "arch"),
        [("x = 1", "sm_80"), ("tcgen05.mma()", "sm_100"), ("warpgroup.fence()", "sm_90"),
         ("make_tiled_tma_atom()", "sm_90"), ("MmaMXF4Op()", "sm_120")],
    )  # fmt: skip
    def test_what_it_uses_decides_where_no_folder_does(self, tree, text, arch):
        path = tree.examples / "experimental/primitives/other.py"
        path.write_text(text + "\n")
        assert catalog.find(tree, "primitives-other").arch == arch

    def test_two_files_of_one_id(self, tree):
        (tree.examples / "cute/ampere/tutorial/scale").mkdir(parents=True)
        (tree.examples / "cute/ampere/tutorial/scale/scale.py").write_text("x = 1\n")
        with pytest.raises(KnowledgeError, match=r"kernel/scale/scale.py and .* both be ampere-s"):
            catalog.entries(tree)

    def test_a_file_that_vanishes_meanwhile(self, tree):
        entry = catalog.find(tree, "cute/ampere/kernel/scale/scale.py")
        entry.file.unlink()
        with pytest.raises(KnowledgeError, match=r"scale.py vanished from the fetched tree"):
            entry.content  # noqa: B018

    def test_a_file_that_is_no_example(self, tree):
        with pytest.raises(KnowledgeError, match="is in the tree and no example"):
            catalog.find(tree, "media/docs/page.md")

    def test_an_empty_tree(self, tree):
        for file in tree.examples.rglob("*.py"):
            file.unlink()
        with pytest.raises(KnowledgeError, match="holds no example"):
            catalog.entries(tree)
