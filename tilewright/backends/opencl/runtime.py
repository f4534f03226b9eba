"""Finds every OpenCL driver, opens devices, and keeps one `Session` for each.

pip's Intel CPU runtime ships an `.icd` file that holds a placeholder instead of a path, so the
loader cannot find it. A folder of `.icd` files is therefore written for the loader, with the
system's own drivers and Intel's library, by absolute path. Whoever sets OCL_ICD_VENDORS keeps those
drivers too.
"""

from __future__ import annotations

import hashlib
import os
import sys
import sysconfig
import tempfile
import threading
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from tilewright import settings
from tilewright.backends.opencl.describe import describe
from tilewright.device import Device
from tilewright.errors import DeviceError

_SYSTEM_VENDORS = Path("/etc/OpenCL/vendors")


class Session:
    """An open device: context, in-order queue, compiled programs and scratch that is reused.

    `lock` covers setting arguments and enqueueing, as kernel objects hold their arguments; whoever
    holds it may use `scratch`, and the in-order queue keeps one product's scratch from the next's.
    """

    def __init__(self, device: Device, cl_device: Any, context: Any, queue: Any) -> None:
        self.device = device
        self.cl_device = cl_device
        self.context = context
        self.queue = queue
        self.lock = threading.RLock()
        self.programs: dict[Any, Any] = {}
        self.executables: dict[Any, Any] = {}
        self.grouped: dict[Any, Any] = {}
        self._scratch: dict[str, Any] = {}

    def scratch(self, name: str, size: int) -> Any:
        """A device buffer of at least `size` bytes; the same one again while it is large enough."""
        cl = pyopencl()
        held = self._scratch.get(name)
        if held is None or held.size < size:
            self._scratch[name] = None
            held = cl.Buffer(self.context, cl.mem_flags.READ_WRITE, size)
            self._scratch[name] = held
        return held

    def release_scratch(self) -> None:
        """Give the scratch back, once the queue has run dry."""
        self.queue.finish()
        self._scratch.clear()


@cache
def pyopencl() -> ModuleType:
    """The pyopencl module, its loader pointed at every driver; imported on first need.

    Raises DeviceError where it is not installed.
    """
    if not _is_installed():
        raise DeviceError(
            "device='opencl': pyopencl is not installed; 'pip install tilewright[cpu]' brings it"
            " with a driver for this processor, 'pip install tilewright[opencl]' without one"
        )
    os.environ["OCL_ICD_VENDORS"] = str(_vendors_folder())
    # The programs are cached here, keyed by driver; pyopencl's own cache would double that.
    os.environ.setdefault("PYOPENCL_NO_CACHE", "1")
    import pyopencl as module

    return module


def _vendors_folder() -> Path:
    libraries = driver_libraries(Path(sysconfig.get_path("data")))
    text = "\n".join(libraries)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    base = settings.cache_folder() or Path(tempfile.gettempdir()) / f"tilewright-{os.getuid()}"
    folder = base / f"vendors-{digest}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=folder.parent))
        for index, library in enumerate(libraries):
            (fresh / f"{index:02}.icd").write_text(library + "\n")
        try:
            fresh.rename(folder)
        except OSError:  # another process was first; its folder has the same content
            return folder
    return folder


def driver_libraries(prefix: Path) -> tuple[str, ...]:
    """Libraries of every driver: the user's or the system's `.icd` files, then Intel's from pip.

    Drivers inside pyopencl's own wheel (PoCL, Oclgrind) are found by its loader in any case.
    """
    named = os.environ.get("OCL_ICD_VENDORS")
    found = _icd_entries(Path(named) if named else _SYSTEM_VENDORS)
    intel = prefix / "lib" / "libintelocl.so"
    # Without the compiler's runtime beside it the driver silently offers no platform.
    if intel.exists() and (prefix / "lib" / "libsvml.so").exists():
        found.append(str(intel))
    return tuple(dict.fromkeys(found))


def _icd_entries(folder: Path) -> list[str]:
    """Libraries that the `.icd` files of a folder name; a bare name may lie beside its file."""
    entries = []
    for icd in sorted(folder.glob("*.icd")):
        library = icd.read_text(errors="replace").strip()
        beside = icd.parent / library
        if "/" not in library and beside.exists():
            library = str(beside)
        if library and ("/" not in library or Path(library).exists()):
            entries.append(library)
    return entries


@cache
def found() -> tuple[tuple[Device, Any], ...]:
    """Every OpenCL device of every driver with pyopencl's handle, best first.

    GPUs before CPUs, and a simulator (Oclgrind) last: nobody means it by "the default".
    """
    if not _is_installed():
        return ()
    cl = pyopencl()
    try:
        platforms = cl.get_platforms()
    except cl.Error:
        return ()
    handles = []
    for platform in platforms:
        try:
            handles += platform.get_devices()
        except cl.Error:
            continue
    described = [(describe(cl, handle, "opencl:?"), handle) for handle in handles]
    order = {"gpu": 0, "accelerator": 1, "cpu": 2, "simulator": 3}
    # Intel's compiler before PoCL 3.0 on the same cores: 340 against 45 GFLOP/s in `panel`.
    described.sort(
        key=lambda pair: (order[pair[0].kind], pair[0].platform == "Portable Computing Language")
    )
    return tuple(
        (describe(cl, handle, f"opencl:{index}"), handle)
        for index, (_, handle) in enumerate(described)
    )


def _is_installed() -> bool:
    from importlib.util import find_spec

    return "pyopencl" in sys.modules or find_spec("pyopencl") is not None


@cache
def session(device: Device) -> Session:
    """The session of a device, opened on first need."""
    cl = pyopencl()
    for known, handle in found():
        # A record with a feature taken away (tests, workarounds) still means the same device.
        if known.id == device.id:
            context = cl.Context([handle])
            queue = cl.CommandQueue(
                context, handle, properties=cl.command_queue_properties.PROFILING_ENABLE
            )
            return Session(device, handle, context, queue)
    raise DeviceError(f"device={device.id!r}: no such OpenCL device is present")


@cache
def foreign_session(context: Any, queue: Any) -> Session:
    """A session on somebody else's context and queue (a `pyopencl.array`)."""
    for known, handle in found():
        if handle == queue.device:
            return Session(known, handle, context, queue)
    raise DeviceError(f"device={queue.device.name!r}: not among the devices that are found")
