"""Answers to what programs and the DSL themselves ask of the driver and of the CUDA runtime.

Both come through NVIDIA's ``cuda.bindings``, which would look for a driver. All streams are one,
and what was asked for is over when a call returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from mla_var3.gpuless import streams
from mla_var3.gpuless.device import Device


def replacements(device: Device) -> Iterator[tuple[Any, str, Any]]:
    """What of the bindings is replaced: owner, name, value."""
    import cuda.bindings.driver as driver
    import cuda.bindings.runtime as runtime

    for owner, well, answers in (
        (driver, driver.CUresult.CUDA_SUCCESS, _driver(driver, device)),
        (runtime, runtime.cudaError_t.cudaSuccess, _runtime(runtime, device)),
    ):
        for name, answer in answers.items():
            if hasattr(owner, name):  # They differ by version.
                yield owner, name, _told(well, answer)


def _told(well: Any, answer: Any) -> Callable[..., tuple[Any, ...]]:
    """A function of the bindings: returns how it went, and what was asked for."""

    def told(*asked: Any, **_: Any) -> tuple[Any, ...]:
        said = answer(*asked) if callable(answer) else answer
        return (well, *said) if isinstance(said, tuple) else (well, said)

    return told


#: What returns nothing but that all is well.
_NOTHING: tuple[Any, ...] = ()


def _driver(driver: Any, device: Device) -> Mapping[str, Any]:
    context, stream = driver.CUcontext(1), driver.CUstream(0)
    nothing = (
        "cuInit", "cuStreamSynchronize", "cuStreamDestroy", "cuStreamQuery", "cuStreamWaitEvent",
        "cuCtxSynchronize", "cuCtxSetCurrent", "cuCtxPushCurrent", "cuDevicePrimaryCtxRelease",
        "cuEventRecord", "cuEventSynchronize", "cuEventQuery", "cuEventDestroy",
        "cuFuncSetAttribute",
    )  # fmt: skip
    return dict.fromkeys(nothing, _NOTHING) | {
        "cuStreamCreate": (stream,),
        "cuStreamCreateWithPriority": (stream,),
        "cuStreamIsCapturing": lambda *_: driver.CUstreamCaptureStatus(int(streams.capturing())),
        "cuEventCreate": (driver.CUevent(0),),
        "cuEventElapsedTime": (1.0,),
        "cuDeviceGet": (driver.CUdevice(0),),
        "cuDeviceGetCount": (1,),
        "cuDeviceGetName": (device.name.encode(),),
        "cuDeviceTotalMem": (device.memory,),
        "cuDeviceGetAttribute": lambda asked, *_: device.attribute(int(asked)),
        "cuDeviceComputeCapability": device.capability,
        "cuDevicePrimaryCtxRetain": (context,),
        "cuDevicePrimaryCtxGetState": (0, 1),
        "cuDriverGetVersion": (driver.CUDA_VERSION,),
        "cuCtxGetCurrent": (context,),
        "cuCtxPopCurrent": (context,),
        "cuCtxGetDevice": (driver.CUdevice(0),),
        "cuMemGetInfo": (device.memory, device.memory),
        "cuGetErrorName": (b"CUDA_SUCCESS",),
        "cuGetErrorString": (b"no error",),
    }


def _runtime(runtime: Any, device: Device) -> Mapping[str, Any]:
    stream = runtime.cudaStream_t(0)
    nothing = (
        "cudaSetDevice", "cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaStreamDestroy",
        "cudaStreamQuery", "cudaStreamWaitEvent", "cudaEventRecord", "cudaEventSynchronize",
        "cudaEventQuery", "cudaEventDestroy", "cudaFuncSetAttribute", "cudaGetLastError",
        "cudaPeekAtLastError",
    )  # fmt: skip
    return dict.fromkeys(nothing, _NOTHING) | {
        "cudaGetDevice": (0,),
        "cudaGetDeviceCount": (1,),
        "cudaDeviceGetAttribute": lambda asked, *_: device.attribute(int(asked)),
        "cudaGetDeviceProperties": lambda *_: _properties(runtime, device),
        "cudaStreamCreate": (stream,),
        "cudaStreamCreateWithFlags": (stream,),
        "cudaStreamIsCapturing": lambda *_: runtime.cudaStreamCaptureStatus(
            int(streams.capturing())
        ),
        "cudaEventCreate": (runtime.cudaEvent_t(0),),
        "cudaEventCreateWithFlags": (runtime.cudaEvent_t(0),),
        "cudaEventElapsedTime": (1.0,),
        "cudaMemGetInfo": (device.memory, device.memory),
        "cudaDriverGetVersion": (runtime.CUDART_VERSION,),
        "cudaRuntimeGetVersion": (runtime.CUDART_VERSION,),
    }


def _properties(runtime: Any, device: Device) -> Any:
    """The structure of the runtime, as far as it has names that torch has."""
    told, names = runtime.cudaDeviceProp(), device.properties()
    told.name = device.name.encode().ljust(256, b"\0")
    told.major, told.minor = device.capability
    told.totalGlobalMem = device.memory
    told.multiProcessorCount = names.multi_processor_count
    told.warpSize = names.warp_size
    told.maxThreadsPerBlock = names.max_threads_per_block
    told.maxThreadsPerMultiProcessor = names.max_threads_per_multi_processor
    told.regsPerMultiprocessor = told.regsPerBlock = names.regs_per_multiprocessor
    told.sharedMemPerBlock = names.shared_memory_per_block
    told.sharedMemPerBlockOptin = names.shared_memory_per_block_optin
    told.sharedMemPerMultiprocessor = names.shared_memory_per_multiprocessor
    told.l2CacheSize = names.L2_cache_size
    return told
