"""Maps stage and kernel names of older records to today's names when they are read.

The files keep the names that the run saw. A stage whose name in the sources changes, and nothing
else, gets a line here, so that its old records stand beside its new ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

Names = Mapping[str, str]

#: What the names of the day said of versions: ``flash_mla_v12``, ``mla_var6_plus_v4_latent``.
_VERSION = re.compile(r"_v\d+(?=_|$)")
_ATTENTION = {
    "flash_attention": "attention", "flash_mla": "attention", "hopper_attention": "attention",
}  # fmt: skip
_OF_VAR6_PLUS = {
    "mla_var6_plus": "attention", "mla_var6_plus_latent": "latent",
    "mla_var6_plus_decompressed": "decompressed", "mla_var6_plus_combine": "combine",
}  # fmt: skip

#: Names of stages today, by their names without version, by language and design.
STAGES: Mapping[tuple[str, str], Names] = {
    ("cute-dsl", "cutlass_ampere_fmha"): {"cutlass_ampere_fmha": "attention"},
    ("cute-dsl", "cutlass_ampere_gemm"): {"cutlass_ampere_gemm": "gemm"},
    ("cute-dsl", "cutlass_hopper_fmha"): {"cutlass_hopper_fmha": "attention"},
    ("cute-dsl", "cutlass_hopper_gemm"): {"cutlass_hopper_gemm": "gemm"},
    ("cute-dsl", "cutlass_mla_decode"): {"cutlass_mla_decode": "attention"},
    ("cute-dsl", "cutlass_mla_decode_fp8"): {"cutlass_mla_decode_fp8": "attention"},
    ("cute-dsl", "flash_attention"): {"flash_attention": "attention"},
    ("cute-dsl", "flash_mla"): {"flash_mla": "attention"},
    ("cute-dsl", "hopper_attention"): {"hopper_attention": "attention"},
    ("cute-dsl", "hopper_gemm"): {"hopper_gemm": "gemm"},
    ("cute-dsl", "mla_shared_prefix"): {"mla_shared_prefix": "attention"},
    ("cute-dsl", "mla_var6_plus"): {"flash_mla": "old", "flash_attention": "newest"},
    ("cute-dsl", "thin_mla"): {"thin_mla": "attention"},
    ("cutile-dsl", "flash_attention"): {"flash_attention": "attention"},
    ("cutile-dsl", "flash_mla"): {"flash_mla": "attention"},
    ("cutile-dsl", "gemm"): {"gemm": "gemm"},
    ("library", "deepseek_flash_mla"): {"deepseek_flash_mla": "attention"},
    ("library", "tilegym_mla"): {"tilegym_mla": "attention"},
    ("library", "torch_sdpa"): {"torch_sdpa": "attention"},
    ("library", "torch_sdpa_mla"): {"torch_sdpa_mla": "attention"},
    ("library", "triton_mla"): {"triton_mla": "attention"},
}

#: The same of kernel functions.
KERNELS: Mapping[tuple[str, str], Names] = {
    ("cute-dsl", "flash_attention"): _ATTENTION,
    ("cute-dsl", "flash_mla"): _ATTENTION,
    ("cute-dsl", "hopper_attention"): _ATTENTION,
    ("cute-dsl", "hopper_gemm"): {"hopper_gemm": "gemm"},
    ("cute-dsl", "mla_shared_prefix"): {
        **_ATTENTION, "mla_shared_prefix": "attention", "own_tokens": "attention",
    },
    ("cute-dsl", "mla_var6_plus"): _ATTENTION,
    ("cute-dsl", "thin_mla"): {"thin_mla": "attention"},
    ("cutile-dsl", "flash_attention"): _ATTENTION,
    ("cutile-dsl", "flash_mla"): {"flash_mla": "attention"},
    ("cutile-dsl", "flash_mla_fp8"): {
        "flash_mla_fp8": "split", "flash_mla_split_kv_reduce": "reduce",
    },
    ("cutile-dsl", "flash_mla_split_kv"): {
        "flash_mla_split_kv": "split", "flash_mla_split_kv_reduce": "reduce",
    },
    ("cutile-dsl", "gemm"): {"gemm": "gemm"},
    ("cutile-dsl", "mla_shared_prefix"): {
        "mla_shared_prefix_latent": "latent", "mla_shared_prefix_decompressed": "decompressed",
        "mla_var6_plus_combine": "combine",
    },
    ("cutile-dsl", "mla_var6_plus"): _OF_VAR6_PLUS,
}  # fmt: skip


def stage(design: tuple[str, str], name: str) -> str:
    """What a stage of a design (language and name) is called today, by what a record calls it."""
    new = STAGES.get(design, {})
    return ".".join(new.get(_VERSION.sub("", part), part) for part in name.split("."))


def kernel(design: tuple[str, str], name: str) -> str:
    """Today's name of a kernel function that was renamed."""
    return KERNELS.get(design, {}).get(_VERSION.sub("", name), name)
