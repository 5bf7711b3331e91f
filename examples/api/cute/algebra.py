"""Layout algebra of the CuTe DSL, each result checked while it is traced; runs without a GPU."""

from cutlass import cute


@cute.jit
def worked():
    matrix, tiler = cute.make_layout((8, 12)), (4, 6)  # (8,12):(1,8), in tiles of 4 by 6
    assert str(cute.logical_divide(matrix, tiler)) == "((4,2),(6,2)):((1,4),(8,48))"
    assert str(cute.zipped_divide(matrix, tiler)) == "((4,6),(2,2)):((1,8),(4,48))"
    assert str(cute.tiled_divide(matrix, tiler)) == "((4,6),2,2):((1,8),4,48)"
    assert str(cute.flat_divide(matrix, tiler)) == "(4,6,2,2):(1,8,4,48)"

    line, every_second = cute.make_layout(24), cute.make_layout(4, stride=2)
    assert str(cute.logical_divide(line, cute.make_layout(4))) == "(4,6):(1,4)"
    assert str(cute.logical_divide(line, every_second)) == "(4,(2,3)):(2,(1,8))"

    wide = cute.make_layout((2, 4), stride=(4, 1))
    assert str(cute.composition(wide, every_second)) == "4:1"
    twenty = cute.make_layout(20, stride=2)
    rows = cute.make_layout((5, 4), stride=(4, 1))
    assert str(cute.composition(twenty, rows)) == "(5,4):(8,2)"
    pairs = cute.make_layout((6, 2), stride=(8, 2))
    threes = cute.make_layout((4, 3), stride=(3, 1))
    assert str(cute.composition(pairs, threes)) == "((2,2),3):((24,2),8)"

    assert str(cute.coalesce(cute.make_layout((2, (1, 6)), stride=(1, (6, 2))))) == "12:1"
    assert str(cute.coalesce(cute.make_layout((4, 8), stride=(8, 1)))) == "(4,8):(8,1)"

    atom = cute.make_layout((2, 2))
    assert str(cute.tiled_product(atom, cute.make_layout((3, 4)))) == "((2,2),3,4):((1,2),4,12)"
    assert str(cute.tile_to_shape(atom, (4, 6), order=(0, 1))) == "((2,2),(2,3)):((1,4),(2,8))"


worked()
