"""What programs ask of the driver and of the CUDA runtime through NVIDIA's bindings."""

import contextlib
from unittest import mock

import pytest

from mla_var3.emulator import driver as answered
from mla_var3.gpuless.device import Device

cuda = pytest.importorskip("cuda.bindings.driver")
runtime = pytest.importorskip("cuda.bindings.runtime")

H200 = Device((9, 0), 132)


@pytest.fixture(autouse=True)
def _answers():
    with contextlib.ExitStack() as stack:
        for owner, name, value in answered.replacements(H200):
            stack.enter_context(mock.patch.object(owner, name, value))
        yield


ATTRIBUTES = {
    "MULTIPROCESSOR_COUNT": 132,
    "COMPUTE_CAPABILITY_MAJOR": 9,
    "COMPUTE_CAPABILITY_MINOR": 0,
    "MAX_SHARED_MEMORY_PER_BLOCK": 48 << 10,
    "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 227 << 10,
    "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": 228 << 10,
    "RESERVED_SHARED_MEMORY_PER_BLOCK": 1 << 10,
    "WARP_SIZE": 32,
    "MAX_THREADS_PER_BLOCK": 1024,
    "MAX_THREADS_PER_MULTIPROCESSOR": 2048,
    "MAX_REGISTERS_PER_BLOCK": 65536,
    "L2_CACHE_SIZE": 50 << 20,
    "MAX_GRID_DIM_X": 2**31 - 1,
    "COOPERATIVE_LAUNCH": 1,
    "CLUSTER_LAUNCH": 1,
}


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_attributes_are_those_of_the_device(name):
    asked = getattr(cuda.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
    well, value = cuda.cuDeviceGetAttribute(asked, 0)
    assert (well, value) == (cuda.CUresult.CUDA_SUCCESS, ATTRIBUTES[name])
    _, same = runtime.cudaDeviceGetAttribute(runtime.cudaDeviceAttr(int(asked)), 0)
    assert same == value


def test_unknown_attributes_are_zero():
    asked = cuda.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_TCC_DRIVER
    assert cuda.cuDeviceGetAttribute(asked, 0)[1] == 0


def test_who_asks_for_multiprocessors_is_noted():
    asked = []
    device = Device((9, 0), 7, counted=lambda: asked.append(1))
    told = {name: value for _, name, value in answered.replacements(device)}
    told["cuDeviceGetAttribute"](cuda.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0)
    assert not asked
    told["cuDeviceGetAttribute"](
        cuda.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0
    )
    assert asked


def test_there_is_one_device_with_a_context():
    assert cuda.cuInit(0) == (cuda.CUresult.CUDA_SUCCESS,)
    assert cuda.cuDeviceGetCount()[1] == runtime.cudaGetDeviceCount()[1] == 1
    assert int(cuda.cuCtxGetCurrent()[1]) != 0
    assert int(cuda.cuDeviceGet(0)[1]) == int(cuda.cuCtxGetDevice()[1]) == 0
    assert runtime.cudaGetDevice()[1] == 0
    assert cuda.cuDeviceGetName(64, 0)[1].decode() == H200.name
    assert cuda.cuMemGetInfo()[1:] == (H200.memory, H200.memory)


def test_properties_of_the_runtime_agree_with_attributes():
    well, told = runtime.cudaGetDeviceProperties(0)
    assert well == runtime.cudaError_t.cudaSuccess
    assert (told.major, told.minor, told.multiProcessorCount) == (9, 0, 132)
    assert told.sharedMemPerBlockOptin == 227 << 10
    assert told.name.rstrip(b"\0").decode() == H200.name


def test_nothing_is_captured_and_streams_are_done():
    stream = cuda.cuStreamCreate(0)[1]
    assert cuda.cuStreamSynchronize(stream) == (cuda.CUresult.CUDA_SUCCESS,)
    status = cuda.cuStreamIsCapturing(stream)[1]
    assert status == cuda.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE
    assert runtime.cudaGetLastError() == (runtime.cudaError_t.cudaSuccess,)
