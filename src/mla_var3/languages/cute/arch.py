"""Decides which archs a CuTe kernel can be compiled for, by the names that its sources use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from types import MappingProxyType

from mla_var3.archs import base_arch
from mla_var3.errors import UnknownNameError

#: Arch -> what the compiler is asked for. The variants with ``a`` allow what only that arch has
#: (PTX ISA, section ".target"), which is what these kernels are written for.
TARGETS: Mapping[str, str] = MappingProxyType(
    {
        "sm_80": "sm_80", "sm_86": "sm_86", "sm_87": "sm_87", "sm_89": "sm_89",
        "sm_90": "sm_90a",
        "sm_100": "sm_100a", "sm_103": "sm_103a", "sm_110": "sm_110a",
        "sm_120": "sm_120a", "sm_121": "sm_121a",
    }
)  # fmt: skip

_HOPPER = ("sm_90",)
_DATACENTER_BLACKWELL = ("sm_100", "sm_103", "sm_110")
_GEFORCE_BLACKWELL = ("sm_120", "sm_121")
_SINCE_HOPPER = (*_HOPPER, *_DATACENTER_BLACKWELL, *_GEFORCE_BLACKWELL)


@dataclass(frozen=True)
class Feature:
    """Something that only some archs have.

    Attributes:
        name: What people call it.
        marks: Identifiers whose use in a source shows that it is used.
        archs: The archs that have it (PTX ISA, "Target ISA Notes" of its instructions).
        elsewhere: What the other archs have in its place.
    """

    name: str
    marks: frozenset[str]
    archs: tuple[str, ...]
    elsewhere: str


FEATURES = (
    Feature(
        "tcgen05 (fifth-generation tensor cores with tensor memory)",
        frozenset({"tcgen05", "blackwell_helpers", "TmemAllocator"}),
        _DATACENTER_BLACKWELL,
        "sm_90 has wgmma instead, sm_120 and sm_121 only warp-level mma",
    ),
    Feature(
        "wgmma (warpgroup matrix multiplication)",
        frozenset({"warpgroup"}),
        _HOPPER,
        "sm_100 has tcgen05 instead, sm_120 only warp-level mma",
    ),
    Feature(
        "block-scaled warp-level mma",
        frozenset({"MmaMXF4Op", "MmaMXF4NVF4Op", "MmaMXF8Op"}),
        _GEFORCE_BLACKWELL,
        "sm_100 has it in tcgen05",
    ),
    Feature(
        "TMA (bulk tensor copies)",
        frozenset(
            {
                "make_tiled_tma_atom",
                "CopyBulkTensorTileG2SOp",
                "CopyBulkTensorTileS2GOp",
                "CopyBulkTensorTileG2SMulticastOp",
            }
        ),
        _SINCE_HOPPER,
        "older ones have cp.async",
    ),
    Feature(
        "setmaxnreg (registers moved between warpgroups)",
        frozenset({"setmaxregister_increase", "setmaxregister_decrease"}),
        _SINCE_HOPPER,
        "older ones give every warp the same",
    ),
    Feature(
        "thread block clusters",
        frozenset({"cluster_arrive", "cluster_wait", "block_idx_in_cluster", "mapa"}),
        _SINCE_HOPPER,
        "older ones have none",
    ),
    Feature(
        "dependent launch (griddepcontrol)",
        frozenset({"griddepcontrol_wait", "griddepcontrol_launch_dependents"}),
        _SINCE_HOPPER,
        "older ones run kernels of a stream one after another",
    ),
)


def target(arch: str) -> str:
    """What the compiler is asked for, such as ``sm_90a`` for ``sm_90``.

    Args:
        arch: Such as ``sm_90``; its variants ``sm_90a`` and ``sm_100f`` name the same arch.

    Raises:
        UnknownNameError: The CuTe DSL does not compile for it.
    """
    return TARGETS[key(arch)]


def key(arch: str) -> str:
    """The arch without its variant letter; UnknownNameError when there is none such."""
    plain = base_arch(arch)
    if plain not in TARGETS:
        raise UnknownNameError("arch", arch, list(TARGETS))
    return plain


def number(arch: str) -> int:
    """The arch as a number, later ones larger: 90 for ``sm_90``."""
    return int(key(arch).removeprefix("sm_"))


def features(identifiers: Set[str]) -> tuple[Feature, ...]:
    """The features that identifiers of a source show, as ``reach.identifiers`` collects them."""
    return tuple(feature for feature in FEATURES if feature.marks & identifiers)


def refusal(used: Iterable[Feature], arch: str) -> str | None:
    """Why sources with these features cannot be compiled for an arch; None when they can.

    Args:
        used: As :func:`features` gives them.
        arch: Such as ``sm_120``.

    Raises:
        UnknownNameError: The CuTe DSL does not compile for the arch.
    """
    plain = key(arch)
    for feature in used:
        if plain not in feature.archs:
            return (
                f"uses {feature.name}, which needs {' or '.join(feature.archs)} and not {plain}: "
                f"{feature.elsewhere}"
            )
    return None
