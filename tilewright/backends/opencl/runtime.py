"""Finds every OpenCL driver, opens devices, and keeps one `Session` for each.

pip's Intel CPU runtime ships an `.icd` file that holds a placeholder instead of a path, so the
loader cannot find it. A folder of `.icd` files is therefore written for the loader, with the
system's own drivers and Intel's library, by absolute path. Whoever sets OCL_ICD_VENDORS or
OCL_ICD_FILENAMES keeps those drivers too.
"""

from __future__ import annotations

import hashlib
import os
import sys
import sysconfig
import threading
import weakref
from collections import deque
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from tilewright import settings
from tilewright.backends.opencl.describe import describe
from tilewright.backends.opencl.rules import wants_one_queue
from tilewright.errors import DeviceError, DeviceMemoryError, OperandError
from tilewright.facts.device import Device
from tilewright.files import cache as cache_files
from tilewright.remember import Shelf, open_after_fork

_SYSTEM_VENDORS = Path("/etc/OpenCL/vendors")
_opening = open_after_fork(threading.RLock())  # a handler may come while it is held
_FORKS = "Intel(R) OpenCL"  # the one platform whose queues work on in a forked child


class Session:
    """An open device: context, in-order queue, and scratch that is reused.

    `lock` covers setting arguments and enqueueing, as kernel objects hold their arguments; whoever
    holds it may use `scratch`, and the in-order queue keeps one product's scratch from the next's.
    What is compiled is kept by (session, ...) on the shelves below.

    In a forked child it works on with Intel's driver, unless a product was under way; of any other
    it is `lost`, and who takes its lock there gets a DeviceError.
    """

    def __init__(self, device: Device, cl_device: Any, context: Any, queue: Any) -> None:
        self.device = device
        self.cl_device = cl_device
        self.context = context
        self.queue = queue
        self.lock: Any = threading.RLock()
        self.lost = False
        self.begun: set[Any] = set()  # launches that somebody still waits for, without the lock
        self._running: deque[tuple[Any, Any]] = deque()
        _sessions.add(self)

    def turn(self) -> Any:
        """The lock, for a product. Raises OperandError where this thread is in the middle of one.

        The lock lets a thread in again, as a finalizer may give memory back anywhere; but kernels'
        arguments and scratch are those of the product beneath it.
        """
        if not self.lost and self.lock._is_owned():
            raise OperandError(
                f"device={self.device.id!r}: this thread is in the middle of a product on it (a"
                " signal handler or a finalizer asks for another); accepted are device='host', and"
                " products one after another"
            )
        return self.lock

    def another_queue(self) -> Any:
        """A queue beside the session's own; that one itself where a driver must have only one."""
        if wants_one_queue(self.device):
            return self.queue
        return pyopencl().CommandQueue(self.context, self.cl_device)

    def hold(self, event: Any, memory: Any) -> None:
        """Keep host memory that enqueued kernels read until this event, the last of them, is over.

        The caller holds the lock. A driver keeps its own buffers, but not what it reads by address.
        """
        running = self._running
        while running and running[0][0].command_execution_status <= 0:  # over, or failed
            running.popleft()
        running.append((event, memory))

    def scratch(self, name: str, size: int) -> Any:
        """A device buffer of at least `size` bytes; the same one again while it is large enough.

        One that grows is half as large again as the one before: executables hold the buffers that
        they ran with last, and go with them.
        """
        cl = pyopencl()
        held = _scratch.get((self, name))
        if held is not None and held.size >= size:
            return held
        if held is not None:
            grown = min(held.size * 3 // 2, self.device.max_allocation or size)
            size = max(size, grown if grown <= MOST_KEPT else 0)
            self.release_scratch(name)
        del held
        buffer = cl.Buffer(self.context, cl.mem_flags.READ_WRITE, size)
        if size > MOST_KEPT:
            return buffer
        return _scratch.keep((self, name), buffer, size=size)

    def release_scratch(self, name: str | None = None) -> None:
        """Give one buffer of scratch back, or all, with the executables that hold them."""
        self.queue.finish()
        for session_, other in list(_scratch.keys()):
            if session_ is self and name in (None, other):
                _scratch.drop((session_, other))
        for key in list(executables.keys()):
            if key[0] is self:
                executables.drop(key)


class _Lost:
    """Stands for the lock of a session that a forked child cannot use."""

    def __init__(self, device: Device) -> None:
        self.device = device

    def __enter__(self) -> None:
        raise DeviceError(
            f"device={self.device.id!r}: was in use when this process was forked, and its driver"
            f" ({self.device.platform}) does not work on in a child; accepted are device='host',"
            " and processes that are started anew (multiprocessing's 'spawn')"
        )

    def __exit__(self, *_: object) -> None:
        """Never reached."""


_sessions: weakref.WeakSet[Session] = weakref.WeakSet()


def _after_fork() -> None:
    for one in tuple(_sessions):
        # A lock that another thread held was for a product under way, of which nothing is left; of
        # launches that were begun the driver's other threads, which a child lacks, have the work.
        idle = one.device.platform == _FORKS and not one.begun
        if not idle or not one.lock.acquire(blocking=False):
            one.lock, one.lost = _Lost(one.device), True
        else:
            one.lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


# Scratch that is larger is made for one product and given back: 256 MiB pack operands of 5,000 a
# side, beside whose product the pages cost nothing.
MOST_KEPT = 256 << 20
_scratch: Shelf[tuple[Session, str], Any] = Shelf("scratch of OpenCL devices", most=1 << 30)
programs: Shelf[tuple[Session, str, Any], Any] = Shelf("programs of OpenCL devices", most=64 << 20)
kernels: Shelf[tuple[Session, str, Any], Any] = Shelf("kernels of grouped products", most=8 << 20)
executables: Shelf[tuple[Session, int], Any] = Shelf("plans ready to launch", most=16 << 20)


@cache
def pyopencl() -> ModuleType:
    """The pyopencl module, its loader pointed at every driver; imported on first need.

    Raises DeviceError where it is not installed or cannot be loaded.
    """
    if not _is_installed():
        raise DeviceError(
            "device='opencl': pyopencl is not installed; 'pip install tilewright[cpu]' brings it"
            " with a driver for this processor, 'pip install tilewright[opencl]' without one"
        )
    if folder := _vendors_folder():
        os.environ["OCL_ICD_VENDORS"] = str(folder)
    # The programs are cached here, keyed by driver; pyopencl's own cache would double that.
    os.environ.setdefault("PYOPENCL_NO_CACHE", "1")
    try:
        import pyopencl as module
    except ImportError as error:  # it is there, and the OpenCL library that it wants is not
        raise DeviceError(
            f"device='opencl': pyopencl cannot be loaded ({error}); 'pip install --force-reinstall"
            " pyopencl' brings one with the library that it wants"
        ) from error

    return module


def _vendors_folder() -> Path | None:
    """A folder with one `.icd` file a driver, filled anew where somebody emptied it; None where
    there is none to write to."""
    libraries = driver_libraries(Path(sysconfig.get_path("data")))
    digest = hashlib.sha256("\n".join(libraries).encode()).hexdigest()[:16]
    folder = settings.code_folder(f"vendors-{digest}")
    if folder is None:
        return None
    wanted = {f"{index:02}.icd": f"{library}\n" for index, library in enumerate(libraries)}
    for entry in folder.glob("*.icd"):
        if entry.name not in wanted:
            entry.unlink(missing_ok=True)
    for entry, text in ((folder / name, text) for name, text in wanted.items()):
        if cache_files.read_or_warn(entry) != text.encode():
            cache_files.write(entry, text.encode())
    return folder


def driver_libraries(prefix: Path) -> tuple[str, ...]:
    """Libraries of every driver: the user's or the system's `.icd` files, then those that
    OCL_ICD_FILENAMES names, of which not every loader knows, then Intel's from pip.

    Drivers inside pyopencl's own wheel (PoCL, Oclgrind) are found by its loader in any case.
    """
    found = _named_libraries(os.environ.get("OCL_ICD_VENDORS") or str(_SYSTEM_VENDORS))
    known = {os.path.realpath(library) for library in found}
    for library in os.environ.get("OCL_ICD_FILENAMES", "").split(os.pathsep):
        if library and os.path.realpath(library) not in known:
            found.append(library)
    intel = prefix / "lib" / "libintelocl.so"
    # Without the compiler's runtime beside it the driver silently offers no platform.
    if intel.exists() and (prefix / "lib" / "libsvml.so").exists():
        found.append(str(intel))
    return tuple(dict.fromkeys(found))


def _named_libraries(named: str) -> list[str]:
    """What OCL_ICD_VENDORS may be: a folder of `.icd` files, one such file, or a library.

    A path that is gone stands for nothing: it may be the folder of a parent process that has ended.
    """
    path = Path(named)
    if "/" in named and not path.exists():
        path = _SYSTEM_VENDORS
    if path.is_dir() or path == _SYSTEM_VENDORS:
        return [library for icd in sorted(path.glob("*.icd")) for library in _library_of(icd)]
    if path.suffix == ".icd":
        return _library_of(path if path.is_file() else _SYSTEM_VENDORS / path)
    return [named]


def _library_of(icd: Path) -> list[str]:
    """The library that an `.icd` file names, if there; a bare name may lie beside the file."""
    try:
        library = (
            icd.read_text(encoding="utf-8", errors="replace").strip().partition("\n")[0].strip()
        )
    except OSError:
        return []
    beside = icd.parent / library
    if library and "/" not in library:
        return [str(beside) if beside.exists() else library]
    return [library] if library and Path(library).exists() else []


@cache
def found() -> tuple[tuple[Device, Any], ...]:
    """Every OpenCL device of every driver with pyopencl's handle, best first.

    GPUs before CPUs, and a simulator (Oclgrind) last: nobody means it by "the default".
    """
    try:
        cl = pyopencl()
    except DeviceError:
        return ()
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
    slower = {"Portable Computing Language": 1, "rusticl": 2}
    described.sort(key=lambda pair: (order[pair[0].kind], slower.get(pair[0].platform, 0)))
    return tuple(
        (describe(cl, handle, f"opencl:{index}"), handle)
        for index, (_, handle) in enumerate(described)
    )


def _is_installed() -> bool:
    from importlib.util import find_spec

    try:
        return "pyopencl" in sys.modules or find_spec("pyopencl") is not None
    except (ImportError, ValueError):  # somebody's finder refuses it
        return False


def session(device: Device) -> Session:
    """The session of a device, opened on first need; one for all threads.

    Raises DeviceError in a forked child that cannot use it: compiling there would hang.
    """
    with _opening:
        opened = _open(device)
    if opened.lost:
        opened.lock.__enter__()
    return opened


@cache
def _open(device: Device) -> Session:
    cl = pyopencl()
    for known, handle in found():
        # A record with a feature taken away (tests, workarounds) still means the same device.
        if known.id == device.id:
            try:
                context = cl.Context([handle])
                queue = cl.CommandQueue(
                    context, handle, properties=cl.command_queue_properties.PROFILING_ENABLE
                )
            except cl.Error as error:
                raise DeviceError(
                    f"device={device.id!r}: {device.name} ({device.platform}) does not open:"
                    f" {error}; use another device, or device='host'"
                ) from None
            return Session(device, handle, context, queue)
    raise DeviceError(f"device={device.id!r}: no such OpenCL device is present")


def foreign_session(context: Any, queue: Any) -> Session:
    """A session on somebody else's context and queue (a `pyopencl.array`)."""
    with _opening:
        return _open_foreign(context, queue)


@cache
def _open_foreign(context: Any, queue: Any) -> Session:
    if queue.properties & pyopencl().command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE:
        raise OperandError("a.queue: runs out of order; accepted are in-order queues")
    for known, handle in found():
        if handle == queue.device:
            return Session(known, handle, context, queue)
    raise DeviceError(f"device={queue.device.name!r}: not among the devices that are found")


def session_at(device: Device, queue: Any) -> Session:
    """The device's own session, or that of an array's queue where it has one."""
    return session(device) if queue is None else foreign_session(queue.context, queue)


def guarded(session_: Session, enqueue: Any) -> Any:
    """Call `enqueue`, turning the driver's errors into ours."""
    cl = pyopencl()
    try:
        return enqueue()
    except cl.MemoryError as error:
        session_.release_scratch()
        raise DeviceMemoryError(
            f"device={session_.device.id!r}: {session_.device.name} ran out of memory ({error});"
            " use device='host' or a smaller product"
        ) from None
    except cl.Error as error:
        raise DeviceError(f"device={session_.device.id!r}: the driver failed: {error}") from None
