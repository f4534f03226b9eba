"""Reads the facts of one OpenCL device from its driver into a `Device`."""

from __future__ import annotations

import ctypes
from typing import Any

from tilewright import settings
from tilewright.backends.opencl import rules
from tilewright.facts.device import Device

_IMAGE_PITCH_ALIGNMENT = 0x104A  # CL_DEVICE_IMAGE_PITCH_ALIGNMENT
# What Intel's driver for processors compiles for where it is told to; it goes on to say of its
# vectors what the processor has.
_HELD = {"corei7": 4, "corei7-avx": 8, "core-avx2": 8}
_SVM_BITS = {"svm_coarse": 1, "svm_fine": 2, "svm_system": 8}


def describe(cl: Any, handle: Any, identifier: str) -> Device:
    """The `Device` of a pyopencl device handle. A query that the driver refuses reads as absent."""
    info = cl.device_info

    def ask(name: str, default: Any) -> Any:
        try:
            value = handle.get_info(getattr(info, name))
        except (cl.Error, AttributeError):
            return default
        return default if value is None else value

    images = bool(ask("IMAGE_SUPPORT", False))
    features = _features(cl, handle, ask, images)
    kind = _kind(cl, handle)
    return Device(
        id=identifier,
        backend="opencl",
        name=str(handle.name).strip(),
        vendor=str(handle.vendor).strip(),
        driver=str(handle.driver_version).strip() + (settings.as_held() if kind == "cpu" else ""),
        version=str(handle.version).strip(),
        platform=str(handle.platform.name).strip(),
        kind=kind,
        compute_units=int(ask("MAX_COMPUTE_UNITS", 1)),
        memory=int(ask("GLOBAL_MEM_SIZE", 0)),
        max_allocation=int(ask("MAX_MEM_ALLOC_SIZE", 0)),
        local_memory=int(ask("LOCAL_MEM_SIZE", 0)),
        local_memory_is_dedicated=ask("LOCAL_MEM_TYPE", 0) == cl.device_local_mem_type.LOCAL,
        max_work_group=int(ask("MAX_WORK_GROUP_SIZE", 1)),
        max_work_item_sizes=tuple(map(int, ask("MAX_WORK_ITEM_SIZES", (1, 1, 1)))),
        image_width=int(ask("IMAGE2D_MAX_WIDTH", 0)) if images else 0,
        image_height=int(ask("IMAGE2D_MAX_HEIGHT", 0)) if images else 0,
        image_pitch=_image_pitch(cl, handle) if "image_from_buffer" in features else 1,
        vector_floats=_vector_floats(int(ask("NATIVE_VECTOR_WIDTH_FLOAT", 0)), handle),
        features=features,
    )


def _kind(cl: Any, handle: Any) -> str:
    if "oclgrind" in f"{handle.platform.name} {handle.name}".lower():
        return "simulator"
    if handle.type & cl.device_type.GPU:
        return "gpu"
    return "cpu" if handle.type & cl.device_type.CPU else "accelerator"


def _vector_floats(native: int, handle: Any) -> int:
    """float32 of a register that programs are compiled for."""
    if not str(handle.platform.name).startswith("Intel"):
        return native
    told = settings.held().get("CL_CONFIG_CPU_TARGET_ARCH", "")
    return min(native, _HELD.get(told, native))


def _image_pitch(cl: Any, handle: Any) -> int:
    """Texels to which an image on a buffer must align its rows.

    pyopencl does not know the query, so it goes to clGetDeviceInfo itself. Where that fails too, 64
    texels, the most that any driver is known to ask.
    """
    value = ctypes.c_uint(0)
    try:
        ask = ctypes.CDLL(cl._cl.__file__).clGetDeviceInfo
        pointer = ctypes.c_void_p
        ask.argtypes = (pointer, ctypes.c_uint, ctypes.c_size_t, pointer, pointer)
        status = ask(
            handle.int_ptr, _IMAGE_PITCH_ALIGNMENT, ctypes.sizeof(value), ctypes.byref(value), None
        )
    except (OSError, AttributeError):
        return 64
    return value.value if status == 0 and value.value else 64


def _features(cl: Any, handle: Any, ask: Any, images: bool) -> frozenset[str]:
    extensions = str(handle.extensions).split()
    svm = int(ask("SVM_CAPABILITIES", 0))
    is_cpu = bool(handle.type & cl.device_type.CPU)
    present = {
        "fp16": "cl_khr_fp16" in extensions,
        "fp64": "cl_khr_fp64" in extensions,
        "images": images,
        # OpenCL 3.0 made it optional again: only the extension or 2.x is a promise.
        "image_from_buffer": images
        and ("cl_khr_image2d_from_buffer" in extensions or " 2." in str(handle.version)[:10]),
        "unified_memory": is_cpu or bool(ask("HOST_UNIFIED_MEMORY", False)),
        **{name: bool(svm & bit) for name, bit in _SVM_BITS.items()},
        "short_loops": rules.has_short_loops(str(handle.platform.name), str(handle.name)),
    }
    return frozenset(name for name, there in present.items() if there)
