"""Blocks of one addition in programmatic_dependent_launch: its tile, made by the DSL here."""

import cutlass.cute as cute

ROWS, COLUMNS, VECTOR = 256, 1024, 4


@cute.jit
def measure():
    threads = cute.make_ordered_layout((4, 32), order=(1, 0))
    values = cute.make_ordered_layout((4, VECTOR), order=(1, 0))
    tile, _ = cute.make_layout_tv(threads, values)
    matrix = cute.make_identity_tensor((ROWS, COLUMNS))
    print(cute.size(cute.zipped_divide(matrix, tile), mode=[1]))


measure()
