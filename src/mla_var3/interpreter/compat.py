"""Compatibility check: refuses an installed cuda-tile whose typed IR is not the one read here.

The interpreter reads a private API: the operations that cuTile's front end produces. Their names
and fields are pinned here. Those of another version than the pinned one are compared when the
package is imported, so that an update which changes one of them fails at once with its name, not
with a wrong number later.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator, Mapping
from typing import Any

from mla_var3.errors import ToolchainError

PINNED_VERSION = "1.7.0"

# opcode: (operands, attributes, nested blocks)
Fields = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]


def _fields(operands: str = "", attributes: str = "", blocks: str = "") -> Fields:
    return tuple(operands.split()), tuple(attributes.split()), tuple(blocks.split())


OPCODES: Mapping[str, Fields] = {
    "address_space_cast": _fields("pointer"),
    "assert": _fields("cond", "message"),
    "assign": _fields("value"),
    "assume_bounded": _fields("x", "lower_bound upper_bound"),
    "assume_div_by": _fields("x", "divisor"),
    "break": _fields("values"),
    "continue": _fields("values"),
    "end_branch": _fields("outputs"),
    "fma": _fields("lhs rhs acc", "rounding_mode flush_to_zero"),
    "foreign_pointer_cast": _fields("pointer"),
    "get_array_list_item": _fields("x index"),
    "grid_dependency_control_launch_dependents": _fields("token"),
    "grid_dependency_control_wait": _fields("token"),
    "ifelse": _fields("cond", "", "then_block else_block"),
    "join_tokens": _fields("tokens"),
    "load_pointer": _fields("pointer mask padding_value token", "latency"),
    "loop": _fields("start stop step initial_values", "", "body"),
    "make_dummy": _fields(),
    "make_gather_scatter_view": _fields("array"),
    "make_list_view": _fields("base_ptr length"),
    "make_partition_view": _fields("array"),
    "make_strided_view": _fields("array"),
    "make_tensor_view": _fields("base_ptr shape strides"),
    "make_token": _fields(),
    "num_tiles": _fields("view"),
    "pointer_offset": _fields("pointer offset"),
    "raw_binary_arith": _fields("lhs rhs", "fn rounding_mode flush_to_zero propagate_nan"),
    "raw_binary_bitwise": _fields("lhs rhs", "fn"),
    "raw_bitwise_shift": _fields("lhs rhs", "fn"),
    "raw_cmp": _fields("lhs rhs", "fn"),
    "raw_fpowi": _fields("base exponent"),
    "raw_where": _fields("cond x y"),
    "reinterpret_pointer": _fields("pointer"),
    "return": _fields(),
    "store_pointer": _fields("pointer value mask token", "latency"),
    "tile_arange": _fields(),
    "tile_astype": _fields("x", "rounding_mode"),
    "tile_atomic_cas": _fields("pointer expected desired mask token", "memory_order memory_scope"),
    "tile_atomic_red_view": _fields("view index update token", "mode memory_order memory_scope"),
    "tile_atomic_rmw": _fields("pointer update mask token", "mode memory_order memory_scope"),
    "tile_bid": _fields("", "axis"),
    "tile_bitcast": _fields("x"),
    "tile_broadcast": _fields("x"),
    "tile_cat": _fields("x y", "axis"),
    "tile_extract": _fields("x index", "shape"),
    "tile_insert": _fields("x value index"),
    "tile_load": _fields(
        "view index token", "latency allow_tma memory_order memory_scope inbounds"
    ),
    "tile_mma": _fields("x y acc", "use_fast_acc"),
    "tile_mma_scaled": _fields("x x_scale y y_scale acc"),
    "tile_num_blocks": _fields("", "axis"),
    "tile_pack": _fields("x"),
    "tile_permute": _fields("x", "axes"),
    "tile_printf": _fields("args token", "format"),
    "tile_reduce": _fields("xs", "identities axis", "body"),
    "tile_reshape": _fields("x"),
    "tile_scan": _fields("xs", "axis reverse identities", "body"),
    "tile_store": _fields(
        "view index tile token", "latency allow_tma memory_order memory_scope inbounds"
    ),
    "tile_unpack": _fields("x"),
    "typed_const": _fields("", "value"),
    "unaryop": _fields("operand", "fn rounding_mode flush_to_zero"),
}


def installed_opcodes() -> dict[str, Fields]:
    """Returns the opcodes and fields that the installed cuda-tile defines."""
    import cuda.tile._compile  # noqa: F401  (importing it defines every operation)
    from cuda.tile._ir.ir import Operation

    return {
        cls._opcode: (
            tuple(cls._operand_names),
            tuple(cls._attribute_names),
            tuple(cls._nested_block_names),
        )
        for cls in _operation_classes(Operation)
        if cls.__module__.startswith("cuda.tile.")
    }


def _operation_classes(base: type[Any]) -> Iterator[type[Any]]:
    for cls in base.__subclasses__():
        yield cls
        yield from _operation_classes(cls)


def differences(found: Mapping[str, Fields]) -> list[str]:
    """Lists how ``found`` differs from the pinned table, one phrase per difference."""
    lines = [f"opcode {name!r} is gone" for name in sorted(OPCODES.keys() - found.keys())]
    lines += [f"opcode {name!r} is new" for name in sorted(found.keys() - OPCODES.keys())]
    for name in sorted(OPCODES.keys() & found.keys()):
        for what, expected, actual in zip(
            ("operands", "attributes", "blocks"), OPCODES[name], found[name], strict=True
        ):
            if expected != actual:
                lines.append(
                    f"{what} of {name!r} are ({', '.join(actual)}), "
                    f"expected ({', '.join(expected)})"
                )
    return lines


def check_installed() -> None:
    """Raises ToolchainError unless the typed IR is the pinned one; that of its version is."""
    if (version := _installed_version()) != PINNED_VERSION:
        check(version=version)


def _installed_version() -> str:
    return importlib.metadata.version("cuda-tile")


def check(found: Mapping[str, Fields] | None = None, version: str | None = None) -> None:
    """Raises unless the typed IR is the pinned one.

    Args:
        found: Opcodes and fields to check; those of the installed cuda-tile by default.
        version: The version to name in the message; the installed one by default.

    Raises:
        ToolchainError: Naming every opcode or field that differs.
    """
    lines = differences(installed_opcodes() if found is None else found)
    if not lines:
        return
    version = version or _installed_version()
    raise ToolchainError(
        f"the interpreter is written for the typed IR of cuda-tile {PINNED_VERSION}, "
        f"but cuda-tile {version} is installed and differs: {'; '.join(lines)}"
    )
