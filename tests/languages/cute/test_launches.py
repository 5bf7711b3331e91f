import pytest

from mla_var3.errors import ToolchainError
from mla_var3.languages.cute import launches

CONFIG = "!llvm.struct<(array<3 x i32>, array<3 x i32>, i64, ptr, ptr, i32)>"
ATTRIBUTE = "!llvm.struct<(i32, array<4 x i8>, array<64 x i8>)>"


def element(to, at, kind):
    return f"    %{to} = llvm.getelementptr %c[0, {at}] : (!llvm.ptr) -> !llvm.ptr, {kind}"


def stored(value, to, bits=32):
    return f"    llvm.store %{value}, %{to} : i{bits}, !llvm.ptr"


def host(*, shared="66560", cluster=2, kernel="first"):
    lines = ["  llvm.func @host(%arg0: !llvm.ptr) -> i32 {"]
    for name, value in {"n128": 128, "n1": 1, "n4": 4, f"n{cluster}": cluster}.items():
        lines.append(f"    %{name} = llvm.mlir.constant({value} : i32) : i32")
    if shared is not None:
        lines.append(f"    %smem = llvm.mlir.constant({shared} : i64) : i64")
    for axis, value in enumerate(("n128", "n1", "n1")):
        lines += [element(f"b{axis}", f"1, {axis}", CONFIG), stored(value, f"b{axis}")]
    lines += [element("s", "2", CONFIG), stored("smem", "s", 64)]
    for axis, value in enumerate(("computed", "n1", "n1")):
        lines += [element(f"g{axis}", f"0, {axis}", CONFIG), stored(value, f"g{axis}")]
    lines += [element("id", "0", ATTRIBUTE), stored("n4", "id")]
    for axis, value in enumerate((f"n{cluster}", "n1", "n1")):
        where = element(f"d{axis}", f"{axis}", "!llvm.struct<(i32, i32, i32)>")
        lines += [where, stored(value, f"d{axis}")]
    lines += [
        f"    %k = llvm.mlir.addressof @kernels_{kernel} : !llvm.ptr",
        "    %r = llvm.call @_cudaLaunchKernelEx(%c, %k, %a) : (!llvm.ptr) -> i32",
        "  }",
    ]
    return "\n".join(lines)


def test_a_launch_states_what_is_constant():
    (found,) = launches.parse("module {\n" + host() + "\n}")
    assert found == launches.Launch("first", (None, 1, 1), (128, 1, 1), (2, 1, 1), 66560)


def test_shared_memory_that_is_worked_out_is_unknown():
    (found,) = launches.parse("module {\n" + host(shared=None) + "\n}")
    assert found.shared_bytes is None


def test_every_function_has_numbers_of_its_own():
    both = launches.parse("\n".join(["module {", host(), host(cluster=1, kernel="second"), "}"]))
    assert [(each.kernel, each.cluster[0]) for each in both] == [("first", 2), ("second", 1)]


def test_a_launch_of_no_kernel_is_refused():
    text = host().replace("@kernels_first", "@something_else")
    with pytest.raises(ToolchainError, match="a launch states no kernel"):
        launches.parse("module {\n" + text + "\n}")
