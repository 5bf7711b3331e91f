import pytest

from mla_var3.errors import ToolchainError
from mla_var3.languages.cute.parameters import layout, written


def mask(text: str) -> tuple[bool, ...]:
    return tuple(char == "x" for char in text)


@pytest.mark.parametrize(
    ("type_", "bytes_"),
    [
        ("f32", "xxxx"),
        ("i64", "x" * 8),
        ("!llvm.ptr", "x" * 8),
        ("!llvm.struct<(struct<()>, struct<(struct<(i32, i32)>, struct<()>)>)>", "x" * 8),
        ("!llvm.struct<(ptr<1>, struct<(i32, struct<()>)>)>", "x" * 12 + "...."),
        ("!llvm.struct<(i8, i32, i64)>", "x...xxxxxxxxxxxx"),
        ("!llvm.struct<(i32, struct<(i64, i64)>)>", "xxxx...." + "x" * 16),
        ("!llvm.array<3 x i32>", "x" * 12),
        ("!llvm.struct<(i1, i1, vector<8xi32>)>", "xx" + "." * 30 + "x" * 32),
        ("!llvm.struct<(array<2 x struct<(i32, i8)>>)>", "xxxxx...xxxxx..."),
    ],
)
def test_padding_is_told_from_fields(type_, bytes_):
    assert layout(type_) == mask(bytes_)


def test_a_descriptor_is_described_by_its_first_half():
    assert layout("!llvm.struct<(struct<(array<16 x i64>)>)>") == mask("x" * 64 + "." * 64)


IR = """module attributes {gpu.container_module} {
  llvm.func @host(%arg0: !llvm.ptr, %arg1: f32) -> i32 {
    %1 = llvm.mlir.constant(2 : i32) : i32
    %2 = llvm.alloca %1 x !llvm.ptr : (i32) -> !llvm.ptr
    %4 = llvm.alloca %3 x !llvm.struct<(i8, i32)> {alignment = 64 : i64} : (i32) -> !llvm.ptr
    %5 = llvm.getelementptr %2[%3] : (!llvm.ptr, i32) -> !llvm.ptr, !llvm.ptr
    llvm.store %4, %5 : !llvm.ptr, !llvm.ptr
    %6 = llvm.alloca %3 x f32 : (i32) -> !llvm.ptr
    llvm.store %arg1, %6 : f32, !llvm.ptr
    %7 = llvm.getelementptr %2[%1] : (!llvm.ptr, i32) -> !llvm.ptr, !llvm.ptr
    llvm.store %6, %7 : !llvm.ptr, !llvm.ptr
    %9 = llvm.call @_cudaLaunchKernelEx(%8, %3, %2) : (!llvm.ptr, !llvm.ptr, !llvm.ptr) -> i32
"""


def test_parameters_come_in_the_order_of_the_launch():
    assert written(IR) == [mask("x...xxxx"), mask("xxxx")]


def test_host_code_of_another_release_is_refused():
    with pytest.raises(ToolchainError, match="0 functions"):
        written("module {}")
    with pytest.raises(ToolchainError, match="not stored"):
        written(IR.replace("%6 = llvm.alloca", "%6 = llvm.other"))
