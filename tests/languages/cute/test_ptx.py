import pytest

from mla_var3.errors import ToolchainError
from mla_var3.languages.cute import ptx, reading

MODULE = """
.version 9.4
.target sm_90a

.visible .entry first(
	.param .b64 first_param_0
)
.reqntid 128, 1, 1
{
	.loc	1 10 0
	mov.b32 	%r1, 1;
	mov.b32 	%r2, 2;
	add.s32 	%r9, %r0, 16;
	mbarrier.init.shared.b64 	[%r0], %r1;
	mbarrier.init.shared.b64 	[%r0+8], %r1;
	mbarrier.init.shared.b64 	[%r9], %r2;
	mbarrier.init.shared.b64 	[%r0+24], %r2;
	mbarrier.init.shared.b64 	[%r0+40], 1;
	.loc	1 12 3
	@%p1 mbarrier.arrive.expect_tx.shared.b64 %rd1, [%r0], 16384;
	// begin inline asm
	.loc	1 99 1
	setmaxnreg.dec.sync.aligned.u32 	40;
	// end inline asm
	setmaxnreg.inc.sync.aligned.u32 	232;
	ret;
}
.visible .entry second()
{
	mbarrier.init.shared.b64 	[%r0], %r7;
	ret;
}
	.file	1 "/somewhere/kernel.py"
"""


@pytest.fixture
def first():
    return ptx.module(MODULE).kernels["first"]


def test_kernels_and_version():
    assert list(ptx.module(MODULE).kernels) == ["first", "second"]
    assert ptx.module(MODULE).version == "9.4"


def test_barriers_are_grouped_by_place_and_arrivals(first):
    assert ptx.barriers(first) == [(2, 1), (2, 2), (1, 1)]


def test_unknown_arrivals_leave_the_groups_unknown():
    assert ptx.barriers(ptx.module(MODULE).kernels["second"]) == []


def test_transactions_and_budgets(first):
    assert ptx.transactions(first) == (16384,)
    assert ptx.budgets(first) == [("dec", 40), ("inc", 232)]


def test_statements_have_their_python_line_and_their_own(first):
    by_opcode = {i.op: i for i in first.instructions}
    place = ("/somewhere/kernel.py", 12)
    assert first.place(by_opcode["mbarrier.arrive.expect_tx.shared.b64"]) == place
    # Inline PTX counts its own lines.
    assert first.place(by_opcode["setmaxnreg.dec.sync.aligned.u32"]) == place
    lines = MODULE.splitlines()
    for instruction in first.instructions:
        assert instruction.op in lines[instruction.number - 1]


@pytest.mark.parametrize(
    ("text", "what"), [("nothing", "not PTX"), (MODULE.replace(".version 9.4", ""), "version")]
)
def test_text_that_is_no_ptx_is_refused(text, what):
    with pytest.raises(ToolchainError, match=what):
        ptx.module(text)


@pytest.mark.parametrize(
    ("groups", "mbarriers", "transactions", "shared", "stages"),
    [
        ([(4, 1)], 4, (16384,), 66560, 4),  # A ring that nobody hands back.
        ([(4, 1), (4, 2)], 8, (49152,), 230400, 4),  # Full and empty barriers.
        ([(8, 1)], 8, (16384,), 66560, 4),  # Both wait for one arrival.
        ([], 14, (32768,), 230400, 7),  # Addresses worked out at run time.
        ([(4, 1)], 4, (), 66560, None),  # Nothing is loaded by TMA.
        ([(1, 1)], 1, (2048,), 2048, 1),
        ([(6, 1)], 6, (100_000,), 200_000, None),  # Two tiles fit, and no group is of 2 or 1.
    ],
)
def test_the_pipeline_is_as_deep_as_barriers_and_memory_allow(
    groups, mbarriers, transactions, shared, stages
):
    assert reading.stages(groups, mbarriers, transactions, shared) == stages


def test_a_kernel_has_no_tensor_memory_of_its_neighbor():
    alloc = "mov.b32 %r5, 512;\n\ttcgen05.alloc.cta_group::1.sync.aligned.b32 [%r4], %r5;\n\tret;"
    head, _, tail = MODULE.rpartition("ret;")
    kernels = ptx.module(head + alloc + tail).kernels
    assert {name: reading.tensor_memory(entry) for name, entry in kernels.items()} == {
        "first": 0,
        "second": 512,
    }


def test_warnings_name_python_lines_and_stand_once(first):
    line = next(i.number for i in first.instructions if i.op.startswith("mbarrier.arrive"))
    text = "\n".join(
        f"ptxas info    : (C7517) wgmma.wait_group is injected in around line {n} by compiler "
        f"in function '{name}'"
        for n, name in ((line, "first"), (line + 1, "first"), (line, "second"))
    )
    assert reading.ptxas_warnings(text, first) == (
        "(C7517) wgmma.wait_group is injected at kernel.py:12 by compiler",
    )


def test_names_of_device_kernels():
    mangled = "kernel_cutlass_kernel_exp_modThing_object_at__tensorptrf32_0"
    assert reading.short_name(mangled, ["kernel", "kernel_exp", "other"]) == "kernel_exp"
    assert reading.short_name(mangled) == "kernel_exp_modThing"


def _multiplies(*constants: str) -> str:
    """A kernel whose descriptors hold constants."""
    built = "".join(f"\tor.b64 \t%rd{i}, %rd9, {value};\n" for i, value in enumerate(constants))
    return (
        ".version 9.4\n.target sm_90a\n.visible .entry one()\n{\n"
        f"{built}\twgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 "
        "{%f0, %f1, %f2, %f3}, %rd0, %rd1, p, 1, 1, 0, 0;\n\tret;\n}\n"
    )


@pytest.mark.parametrize(
    ("constants", "swizzle"),
    [
        (("0x4000004000010000", "0x4000004000010002"), 128),
        (("4611686293305360384", "-9223371899415756800"), 64),  # Bits 62 and 63 are 1, then 2.
        (("0xC000004000010000",), 32),
        (("0x12f0000000000000",), 0),  # An L2 policy is no descriptor.
        ((), 0),
    ],
)
def test_the_narrowest_swizzle_of_the_tiles_that_warpgroups_multiply(constants, swizzle):
    found = ptx.module(_multiplies(*constants)).kernels["one"]
    assert ptx.operand_swizzle(found) == swizzle


def test_a_kernel_without_warpgroup_products_has_no_such_tiles(first):
    assert ptx.operand_swizzle(first) is None
