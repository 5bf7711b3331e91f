import ctypes
import hashlib
import json
import subprocess
import sys

import pytest
import torch

from mla_var3 import loader
from mla_var3.errors import ToolchainError
from tests.languages.cute.conftest import needs_dsl

HEADER = """
typedef struct {
    void *data;
    int32_t dynamic_shapes[2];
    int64_t dynamic_strides[1];
} k_Tensor_a_t;

void _mlir_k__mlir_ciface_host(void **args, int32_t num_args);

static inline int32_t cute_dsl_k_wrapper(k_Kernel_Module_t *module, k_Tensor_a_t *a, float f, \
cudaStream_t stream) {
"""


@pytest.fixture(scope="module")
def exported(tmp_path_factory, cute_cache):
    from mla_var3.languages.cute.configuration import Configuration
    from mla_var3.languages.cute.export import export
    from tests.languages.cute import kernels_for_tests as kernels

    folder = tmp_path_factory.mktemp("exported")
    told = []
    configurations = [
        Configuration(
            {"tile_n": tile_n, "stages": stages},
            kernels.Gemm(tile_n, stages),
            kernels.gemm_arguments(),
        )
        for tile_n, stages in ((64, 4), (64, 2), (100, 2))
    ]
    manifest = export(
        "gemm", configurations, "sm_90", folder, cache_dir=cute_cache, progress=told.append
    )
    assert len(told) == 3
    return folder, manifest


@needs_dsl
class TestExported:
    def test_one_library_holds_every_tiling_that_compiles(self, exported):
        folder, manifest = exported
        assert sorted(path.name for path in folder.iterdir()) == ["gemm.so", "manifest.json"]
        assert [kernel.tiling["stages"] for kernel in manifest.kernels] == [4, 2]
        assert (manifest.arch, manifest.target) == ("sm_90", "sm_90a")
        library = ctypes.CDLL(str(folder / "gemm.so"))
        for kernel in manifest.kernels:
            assert getattr(library, kernel.symbol)

    def test_a_failed_tiling_is_kept_with_its_reason(self, exported):
        (failure,) = exported[1].failures
        assert failure.tiling == {"tile_n": 100, "stages": 2}
        assert "N % 8 == 0" in failure.reason
        assert "\n" not in failure.reason

    def test_arguments_are_those_of_the_header(self, exported):
        a, _, c = exported[1].kernels[0].arguments
        assert (a.name, a.dtype, a.shape, a.strides) == ("a", "bfloat16", (None, None), (None, 1))
        assert (c.dtype, c.multiple_of, c.shape_bits, c.stride_bits) == ("float32", 64, 32, 64)

    def test_it_loads_without_the_dsl_and_without_pydantic(self, exported):
        """On a host with ctypes and torch alone; here the driver then says that there is none."""
        code = (
            "import sys\n"
            "for name in ('cutlass', 'pydantic', 'nvidia_cutlass_dsl', 'cuda'):\n"
            "    sys.modules[name] = None\n"
            "import importlib.util, pathlib\n"
            f"spec = importlib.util.spec_from_file_location('loader', {loader.__file__!r})\n"
            "module = importlib.util.module_from_spec(spec)\n"
            "spec.loader.exec_module(module)\n"
            f"library = module.Library(pathlib.Path({str(exported[0])!r}))\n"
            "print(library.name, library.target, [k.tiling['stages'] for k in library.kernels])\n"
            "print(library.failures[0][0])\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[0] == "gemm sm_90a [4, 2]"

    @pytest.mark.skipif(torch.cuda.is_available(), reason="is about a machine without GPU")
    def test_without_a_gpu_the_runtime_is_reached_and_says_so(self, exported):
        kernel = loader.Library(exported[0]).kernels[0]
        with pytest.raises(ToolchainError, match=r"loading gemm ended with CUDA error \d+"):
            kernel.load(0)

    def test_arguments_are_checked_before_anything_is_launched(self, exported):
        kernel = loader.Library(exported[0]).kernels[0]
        a, b = torch.zeros(64, 128).bfloat16(), torch.zeros(128, 128).bfloat16()
        c = torch.zeros(64, 128)
        for values, sentence in (
            ((a, b), r"takes 3 arguments \(a, b, c\), and 2 are given"),
            ((a, b, c.half()), "c must be float32, and is float16"),
            ((a, b, c[:, :100]), "c must have a multiple of 64 elements along axis 1, and has 100"),
            ((a, b.T, c), "b must have a multiple of 64 as stride of axis 0, and has 1"),
            ((a, 3, c), "b must be a tensor, and is int"),
            ((a, b, c), "needs its tensors on one GPU, and they are on cpu"),
        ):
            with pytest.raises(ToolchainError, match=sentence):
                kernel(*values)

    @pytest.mark.gpu
    def test_it_multiplies(self, exported):
        if torch.cuda.get_device_capability() != (9, 0):
            pytest.skip("the exported library is for sm_90a, and this GPU is another")
        a, b = (torch.randn(n, 512, device="cuda").bfloat16() for n in (256, 192))
        for kernel in loader.Library(exported[0]).kernels:
            c = torch.full((256, 192), float("nan"), device="cuda")
            kernel(a, b, c)
            torch.testing.assert_close(c, a.float() @ b.float().T, rtol=1e-3, atol=1e-2)


@needs_dsl
def test_when_nothing_compiles_only_the_reasons_are_written(tmp_path, cute_cache):
    from mla_var3.languages.cute.configuration import Configuration
    from mla_var3.languages.cute.export import export
    from tests.languages.cute import kernels_for_tests as kernels

    bad = Configuration({"tile_n": 100}, kernels.Gemm(100, 2), kernels.gemm_arguments())
    manifest = export("bad", [bad], "sm_90", tmp_path, cache_dir=cute_cache)
    assert manifest.library is None
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]
    with pytest.raises(ToolchainError, match=r"no tiling of bad was exported: .*N % 8 == 0"):
        loader.Library(tmp_path)


class TestHeader:
    def specs(self, strides=(None, 1), dtype="Float32"):
        from mla_var3.languages.cute.signature import ScalarSpec, TensorSpec

        tensor = TensorSpec("a", "float16", (None, None), strides, 1, (1, 1))
        return tensor, ScalarSpec("f", dtype)

    def test_symbol_and_arguments_are_read(self):
        from mla_var3.languages.cute import export

        tensor, scalar = export.arguments(HEADER, self.specs())
        assert export.launch_symbol(HEADER) == "_mlir_k__mlir_ciface_host"
        assert (tensor.shape_bits, tensor.stride_bits, scalar.dtype) == (32, 64, "Float32")

    @pytest.mark.parametrize(
        ("specs", "sentence"),
        [
            (
                {"strides": (8, 1)},
                "a has 1 strides in C that are given at launch, and 0 in the DSL",
            ),
            ({"dtype": "Int32"}, "f is float in C and Int32 in the DSL"),
        ],
    )
    def test_a_header_that_says_something_else_is_refused(self, specs, sentence):
        from mla_var3.languages.cute import export

        with pytest.raises(ToolchainError, match=sentence):
            export.arguments(HEADER, self.specs(**specs))

    def test_a_header_of_another_form_is_refused(self):
        from mla_var3.languages.cute import export

        with pytest.raises(ToolchainError, match=r"takes 0 arguments .* compiled for 2"):
            export.arguments("", self.specs())
        with pytest.raises(ToolchainError, match="declares no launch function"):
            export.launch_symbol("")


class TestDamaged:
    @pytest.fixture
    def folder(self, tmp_path):
        (tmp_path / "x.so").write_bytes(b"not a library")
        digest = hashlib.sha256(b"not a library").hexdigest()
        content = {
            "schema_version": 1, "name": "x", "target": "sm_90a", "library": "x.so",
            "sha256": digest, "kernels": [], "failures": [],
        }  # fmt: skip
        return tmp_path, content

    @pytest.mark.parametrize(
        ("change", "sentence"),
        [
            ({"schema_version": 2}, "has schema version 2, and this loader reads 1"),
            ({"sha256": "0"}, "x.so is not the library of its manifest"),
            ({"library": "y.so"}, "y.so cannot be read"),
            ({}, "x.so cannot be loaded"),
        ],
    )
    def test_each_fault_is_one_sentence(self, folder, change, sentence):
        path, content = folder
        (path / "manifest.json").write_text(json.dumps(content | change))
        with pytest.raises(ToolchainError, match=sentence):
            loader.Library(path)

    def test_a_manifest_that_is_none(self, tmp_path):
        for text in ("{", "[]", None):
            if text is not None:
                (tmp_path / "manifest.json").write_text(text)
            with pytest.raises(ToolchainError, match="cannot be read as a manifest"):
                loader.Library(tmp_path / "manifest.json")


def test_a_library_for_another_arch_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _device: (12, 0))
    library = loader.Library.__new__(loader.Library)
    library.name, library.target = "gemm", "sm_90a"
    with pytest.raises(ToolchainError, match="was compiled for sm_90a, and cuda:0 is sm_120"):
        library.require_device(torch.device("cuda:0"))
