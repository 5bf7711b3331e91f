from __future__ import annotations

import importlib.util

import pytest

#: What needs the DSL skips without it; the rest reads text and runs anywhere.
needs_dsl = pytest.mark.skipif(
    importlib.util.find_spec("nvidia_cutlass_dsl") is None, reason="needs nvidia-cutlass-dsl"
)


@pytest.fixture(scope="session")
def cute_cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cute-cache")


@pytest.fixture(scope="session")
def compiled_gemm(cute_cache):
    """The tiny GEMM with a ring of 4 stages, for any multiples of 64, on sm_90."""
    from mla_var3.languages.cute.compile import compile_host
    from tests.languages.cute import kernels_for_tests as kernels

    return compile_host(
        kernels.Gemm(64, 4), kernels.gemm_arguments(), "sm_90", cache_dir=cute_cache
    )
