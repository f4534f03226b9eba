"""Every exception and warning that Tilewright raises on purpose.

Each message names the argument, the value it had and what would be accepted. The classes also
derive from the built-in exception a NumPy user would expect, so `except ValueError` keeps working.
"""

from __future__ import annotations


class TilewrightError(Exception):
    """Base of every error below."""


class ShapeError(TilewrightError, ValueError):
    """Sizes that do not fit each other, or an operand of the wrong rank."""


class DtypeError(TilewrightError, TypeError):
    """An element type that is not supported, or two that differ."""


class ArgumentError(TilewrightError, ValueError):
    """A scalar or a name outside what is accepted."""


class OperandError(TilewrightError, TypeError):
    """Something that is not an array, lies on another device, or is in use elsewhere."""


class OverlapError(TilewrightError, ValueError):
    """`out` shares memory with an input."""


class DeviceError(TilewrightError, RuntimeError):
    """A device that does not exist, or whose driver failed."""


class DeviceMemoryError(DeviceError, MemoryError):
    """The device has not the memory that the product needs."""


class KernelError(TilewrightError, ValueError):
    """A kernel that does not exist, or that this device or product cannot use."""


class BuildError(DeviceError):
    """The device's compiler refused a kernel."""


class CacheError(TilewrightError, OSError):
    """The cache folder that the user named cannot be used."""


class FileError(TilewrightError, ValueError):
    """A file that is truncated, of an unknown format or holds nothing of the wanted kind."""


class CacheWarning(UserWarning):
    """A cached file was damaged and set aside, or the default cache folder cannot be written."""


class DeviceWarning(UserWarning):
    """A driver that answers, but lies: event times that disagree with the wall clock, say."""
