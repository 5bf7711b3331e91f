"""Edits DLPack capsules of CPU tensors in place, so that they report a GPU as their device."""

from __future__ import annotations

import ctypes
from typing import Any

KDL_CUDA = 2
POINTER = ctypes.c_void_p
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = POINTER, [ctypes.py_object, ctypes.c_char_p]
_name = ctypes.pythonapi.PyCapsule_GetName
_name.restype, _name.argtypes = ctypes.c_char_p, [ctypes.py_object]


def on_gpu(capsule: Any) -> Any:
    """The capsule with its device changed in place."""
    name = _name(capsule)
    if name == b"dltensor":
        # DLTensor: void* data, then the device's type.
        at = _pointer(capsule, name) + ctypes.sizeof(POINTER)
        ctypes.cast(at, ctypes.POINTER(ctypes.c_int32))[0] = KDL_CUDA
    return capsule
