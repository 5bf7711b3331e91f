"""What each step of a main loop executes, from listings as nvdisasm prints them."""

from mla_var3.static.steps import step_mix


def _listing(*lines: str) -> str:
    """Instructions at ascending places; a line that ends in a colon is a label."""
    out, at = [], 0
    for line in lines:
        if line.endswith(":"):
            out.append(line)
        else:
            out.append(f"        /*{at:04x}*/                   {line} ;")
            at += 16
    return "\n".join(out)


PRODUCT = "HGMMA.64x128x16.F32.BF16 R24, gdesc[UR4], R24"


def test_a_step_is_the_innermost_loop_with_a_product() -> None:
    found = step_mix(
        _listing(
            "MUFU.EX2 R1, R1",  # Before all loops.
            ".L_x_0:",
            "FADD R2, R2, R3",  # Once per tile.
            ".L_x_1:",
            PRODUCT,
            PRODUCT,
            "FFMA R4, R4, R5, R6",
            "@P0 BRA `(.L_x_1)",
            "STG.E desc[UR6][R2.64], R4",
            "@P1 BRA `(.L_x_0)",
        )
    )
    assert found == {"HGMMA.64x128x16.F32.BF16": 2, "BRA": 1, "FFMA": 1}


def test_what_a_branch_passes_over_is_not_of_every_step() -> None:
    found = step_mix(
        _listing(
            ".L_x_0:",
            PRODUCT,
            "@!P0 BRA `(.L_x_1)",
            "FSEL R4, R4, -INF, P2",
            ".L_x_1:",
            "MUFU.EX2 R4, R4",
            "@P1 BRA `(.L_x_0)",
        )
    )
    assert "FSEL" not in found
    assert found["MUFU"] == 1


def test_a_retry_of_a_wait_is_no_loop() -> None:
    """It lies behind the loop and leads back into it, around all of its second half."""
    found = step_mix(
        _listing(
            ".L_x_0:",
            "SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R3",
            "@!P0 BRA `(.L_x_2)",
            ".L_x_1:",
            PRODUCT,
            "@P1 BRA `(.L_x_0)",
            "FADD R2, R2, R3",
            "EXIT",
            ".L_x_2:",
            "SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R3",
            "@!P0 BRA `(.L_x_2)",
            "BRA `(.L_x_1)",
        )
    )
    assert found[PRODUCT.split()[0]] == 1
    assert "FADD" not in found
    assert "EXIT" not in found


def test_names_keep_what_matters_of_barriers_fences_and_waits() -> None:
    found = step_mix(
        _listing(
            ".L_x_0:",
            PRODUCT,
            "BAR.SYNC.DEFER_BLOCKING 0x1, 0x100",
            "BAR.ARV 0x2, 0x100",
            "MEMBAR.SC.GPU",
            "MEMBAR.ALL.CTA",
            "WARPGROUP.DEPBAR.LE gsb0, 0x1",
            "WARPGROUP.DEPBAR.LE gsb0, 0x0",
            "LDS.128 R4, [R2]",
            "NOP",
            "@P1 BRA `(.L_x_0)",
        )
    )
    assert set(found) == {
        "HGMMA.64x128x16.F32.BF16", "BAR.SYNC", "BAR.ARV", "MEMBAR.SC.GPU", "MEMBAR.ALL.CTA",
        "WARPGROUP.DEPBAR 1", "WARPGROUP.DEPBAR 0", "LDS", "BRA",
    }  # fmt: skip


def test_no_loop_that_multiplies_has_no_steps() -> None:
    assert step_mix(_listing(PRODUCT, "EXIT")) == {}
    assert step_mix(_listing(".L_x_0:", "FADD R1, R1, R2", "@P0 BRA `(.L_x_0)")) == {}
