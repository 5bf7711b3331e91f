import pytest
from hypothesis import given
from hypothesis import strategies as st

from mla_var3.errors import ToolchainError
from mla_var3.static import sass

LISTING = """
	.target	sm_90a
.text.kernel:
	//## File "/somewhere/k.py", line 12
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/               @P0 BRA `(.L_x_1) ;
.L_x_1:
	//## File "/somewhere/k.py", line 14 inlined at "/somewhere/k.py", line 20
        /*0020*/              @!P1 LDL.128 R4, [R1+0x10] ;
        /*0030*/                   LDL.LU.64 R4, [R1+0x10] ;
        /*0040*/             @!UP0 STL [R1+0x54], RZ                              &wr=0x2
        /*0050*/                   STL.U8 [R1+0x54], RZ ;
        /*0060*/                   HGMMA.64x64x16.F32.BF16 R152, gdesc[UR12], RZ, !UPT, gsb0 ;
        /*0070*/                   HFMA2.MMA R4, -RZ, RZ, 0, 0 ;
        /*0080*/                   UTMALDG.3D [UR8], [UR4] ;
        /*0090*/                   NOP ;
"""


def test_listing_gives_opcodes_and_lines_without_padding():
    found = sass.parse_listing(LISTING)
    assert [i.base for i in found] == [
        "LDC", "BRA", "LDL", "LDL", "STL", "STL", "HGMMA", "HFMA2", "UTMALDG",
    ]  # fmt: skip
    assert [i.line for i in found] == [12, 12] + [14] * 7
    assert {i.file for i in found} == {"/somewhere/k.py"}
    assert [i.bytes_per_thread for i in found[2:6]] == [16, 8, 4, 1]


def test_file_names_beyond_ascii_are_read():
    listing = LISTING.replace("/somewhere", r"/\320\272\321\216/\303\251\346\274\242")
    assert {i.file for i in sass.parse_listing(listing)} == {"/кю/é漢/k.py"}


def test_mix_is_ordered_by_count_then_name():
    mix = sass.instruction_mix(sass.parse_listing(LISTING))
    assert list(mix.items())[:3] == [("LDL", 2), ("STL", 2), ("BRA", 1)]
    assert sum(mix.values()) == 9


def test_a_move_idiom_is_no_tensor_core_instruction():
    assert sass.mma_instructions(sass.parse_listing(LISTING)) == {"HGMMA.64x64x16.F32.BF16": 1}


def barriers(*places):
    line = "        /*0110*/                   SYNCS.EXCH.64 URZ, [UR8+{:#x}], UR4 ;\n"
    return "".join(line.format(place) for place in places)


@pytest.mark.parametrize(
    ("places", "depth"),
    [
        ((), 0),
        ((0x20, 0x28), 1),
        ((0x00, 0x10, 0x08, 0x18), 2),
        # Singles, a ring of one, a ring of three and one of two, as tileiras orders them.
        ((0x90, 0x98, 0x00, 0x08, 0x10, 0x28, 0x18, 0x30, 0x20, 0x38, 0x40, 0x50, 0x48, 0x58), 3),
        # The second barrier of the ring that would be is another one's.
        ((0x00, 0x10, 0x60, 0x68), 1),
    ],
)
def test_ring_depth_is_that_of_paired_barriers(places, depth):
    assert sass.ring_depth(LISTING + barriers(*places)) == depth


def test_waits_for_warpgroups_are_no_other_waits():
    code = "        /*0110*/                   {} gsb0, 0x0 ;\n"
    opcodes = ("WARPGROUP.ARRIVE", "WARPGROUP.DEPBAR.LE", "DEPBAR.LE", "WARPGROUP.DEPBAR.LE")
    found = sass.parse_listing("".join(map(code.format, opcodes)))
    assert sass.wgmma_waits(found) == 2


def test_instructions_without_line_information():
    (only,) = sass.parse_listing("        /*0000*/                   EXIT ;")
    assert (only.file, only.line) == (None, None)


def test_an_empty_listing_is_refused():
    with pytest.raises(ToolchainError, match="no instruction"):
        sass.parse_listing("Fatbin elf code")


@pytest.mark.parametrize(
    ("opcode", "family"),
    [
        ("HMMA.16816.F32.BF16", "MMA"),
        ("QMMA.16832.F32.E4M3.E4M3", "MMA"),
        ("IMMA.16832.S8.S8", "MMA"),
        ("DMMA.8x8x4", "MMA"),
        ("HGMMA.64x256x16.F32", "GMMA"),
        ("QGMMA.64x64x32.F32", "GMMA"),
        ("UTCHMMA", "UTCMMA"),
        ("UTCHMMA.2CTA", "UTCMMA"),
        ("UTCQMMA", "UTCMMA"),
        ("UTCBAR", None),
        ("HFMA2.MMA", None),
        ("FFMA", None),
    ],
)
def test_families(opcode, family):
    assert sass.mma_family(opcode) == family


@pytest.mark.parametrize(
    ("mma", "on_cuda_cores", "path"),
    [
        ({}, False, "none"),
        ({}, True, "FMA"),
        ({"HGMMA.64x64x16": 3}, False, "HGMMA"),
        ({"HMMA.16816": 9, "HGMMA.64x64x16": 3}, False, "HGMMA+HMMA"),
        ({"HMMA.16816": 9, "UTCHMMA": 3}, True, "UTCHMMA+HMMA+FMA"),
    ],
)
def test_path_names_every_kind_fastest_first(mma, on_cuda_cores, path):
    assert sass.mma_path(mma, on_cuda_cores=on_cuda_cores) == path


@pytest.mark.parametrize(
    ("path", "arch", "note"),
    [
        ("HGMMA", "sm_90", None),
        ("none", "sm_90", None),
        ("HMMA", "sm_120", None),
        ("HMMA", "sm_80", None),
        ("UTCHMMA", "sm_100", None),
        ("HMMA", "sm_999", None),
        ("HMMA", "sm_90", "fall back to HMMA, where sm_90 has HGMMA"),
        ("HGMMA+HMMA", "sm_90", "fall back to HMMA, where sm_90 has HGMMA"),
        ("HMMA+FMA", "sm_100", "fall back to HMMA and FMA, where sm_100 has UTCHMMA"),
        ("FMA", "sm_120", "fall back to FMA, where sm_120 has HMMA"),
    ],
)
def test_note_says_what_fell_off_the_fast_path(path, arch, note):
    found = sass.mma_note(path, arch)
    assert (found is None) == (note is None)
    assert note is None or note in found


USAGE = """
Resource usage:
 Common:
  GLOBAL:64 CONSTANT[4]:8
 Function matmul_Kt1_A2bf16:
  REG:{reg} STACK:{stack} SHARED:{shared} LOCAL:0 CONSTANT[0]:1024 TEXTURE:0 SURFACE:0 SAMPLER:0
"""


@given(*[st.integers(0, 2**20)] * 3)
def test_resources_round_trip(reg, stack, shared):
    text = USAGE.format(reg=reg, stack=stack, shared=shared)
    assert sass.parse_resources(text) == [sass.Resources("matmul_Kt1_A2bf16", reg, stack, shared)]


def test_resources_that_cannot_be_read():
    with pytest.raises(ToolchainError, match="names no kernel"):
        sass.parse_resources("Resource usage:\n Common:\n  GLOBAL:64\n")
    with pytest.raises(ToolchainError, match="states no STACK"):
        sass.parse_resources(" Function f:\n  REG:1 SHARED:0\n")


ELF = """
.nv.info.f
	<0x1>
	Attribute:	EIATTR_NUM_BARRIERS
	Format:	EIFMT_BVAL
	Value:	0x2
	<0x2>
	Attribute:	EIATTR_REG_RECONFIG
	Format:	EIFMT_NVAL
	<0x3>
	Attribute:	EIATTR_REQNTID
	Format:	EIFMT_SVAL
	Value:	0x180 0x1 0x1{space}
	<0x4>
	Attribute:	EIATTR_CTA_PER_CLUSTER
	Format:	EIFMT_SVAL
	Value:	0x2 0x1 0x1{space}
""".format(space=" ")


def test_attributes():
    found = sass.parse_attributes(ELF)
    assert found["NUM_BARRIERS"] == (2,)
    assert "REG_RECONFIG" not in found
    assert sass.block_threads(found) == 384
    assert sass.cluster_blocks(found) == 2
    assert sass.cluster_blocks({}) == 1


def test_the_reserve_is_told_from_the_kernels_own_memory():
    resources = sass.Resources("f", 32, 0, 2048)
    assert sass.reserved_shared("x\n.nv.shared.reserved.0\n", resources) == 1024
    assert sass.reserved_shared("x\n.nv.shared.f\n", resources) == 0
    none = sass.Resources("f", 32, 0, 0)
    assert sass.reserved_shared("\n.nv.shared.reserved.0\n", none) == 0


def test_tensor_memory():
    alloc = b"tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 \t[smem+8], %r26;\0"
    assert sass.tensor_memory_columns(b"mov.b32 \t%r26, 64;\0" + alloc) == 64
    assert sass.tensor_memory_columns(b"no PTX at all") == 0
    with pytest.raises(ToolchainError, match="unknown amount of tensor memory"):
        sass.tensor_memory_columns(b"mov.b32 \t%r2, 64;\0" + alloc)


def test_block_size_falls_back_to_the_maximum_and_must_exist():
    assert sass.block_threads({"MAX_THREADS": (32, 2, 2)}) == 128
    with pytest.raises(ToolchainError, match="no block size"):
        sass.block_threads({})
