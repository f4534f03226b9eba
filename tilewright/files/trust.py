"""Tells who else may put files into a folder: a cache asks before it loads programs from there.

The cache holds machine code, names of libraries and Numba's pickles, so whoever can write there
runs code as its user. A folder is trusted where its user and root alone can change it, or any
folder on the way to it, links included:

    /tmp/share/cache     share is anyone's to write: somebody may move `cache` and put up their own
    /tmp/mine            /tmp is anyone's too, but sticky: what lies there is its owner's to move

A group that holds its user alone (as Debian and Fedora make them, with umask 002) is no one else,
unless an access control list names others. Windows and macOS keep lists of their own, which are not
read here: on Windows nothing is checked, as a profile's folders are closed to other users.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import struct
from collections.abc import Iterator
from functools import cache
from pathlib import Path

_MOST_LINKS = 40  # as the kernel has it
_ROOT = 0
_ACCESS, _DEFAULT = "system.posix_acl_access", "system.posix_acl_default"
_OWN_ENTRY, _MASK_ENTRY = 0x01, 0x10
_ACL_HEAD, _MAY_WRITE = 4, 2


def why_untrusted(folder: Path) -> str | None:
    """Who else may put files into an existing folder, in words; None where nobody may.

    Raises OSError where the way to it cannot be walked.
    """
    if not hasattr(os, "geteuid"):
        return None
    steps = list(_steps(folder))
    for path, status in steps[:-1]:
        sticky = bool(status.st_mode & stat.S_ISVTX)
        problem = _foreign(path, status) or (None if sticky else _open_to(path, status))
        if problem:
            return problem
    path, status = steps[-1]
    return _foreign(path, status) or _open_to(path, status) or _inherited(path)


def why_untrusted_tree(folder: Path) -> str | None:
    """The same of a folder and of everything in it."""
    problem = why_untrusted(folder)
    if problem or not hasattr(os, "geteuid"):
        return problem
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(parent, name)
            with contextlib.suppress(FileNotFoundError):  # another process has just renamed it
                problem = why_untrusted_entry(path, path.lstat())
            if problem:
                return problem
    return None


def why_untrusted_entry(path: Path, status: os.stat_result) -> str | None:
    """Who else may have written one file or folder of a trusted folder."""
    if not hasattr(os, "geteuid"):
        return None
    if stat.S_ISLNK(status.st_mode):
        return f"{path} is a link"
    return _foreign(path, status) or _open_to(path, status)


def _steps(path: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Every folder and link on the way to `path`, which is the last."""
    here, ahead, links = Path("/"), list(reversed(path.absolute().parts[1:])), 0
    yield here, here.lstat()
    while ahead:
        name = ahead.pop()
        step = here.parent if name == ".." else here / name
        status = step.lstat()
        yield step, status
        if not stat.S_ISLNK(status.st_mode):
            here = step
            continue
        links += 1
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        target = Path(os.readlink(step))
        here = Path("/") if target.is_absolute() else here
        ahead += reversed(target.parts[1:] if target.is_absolute() else target.parts)


def _foreign(path: Path, status: os.stat_result) -> str | None:
    if status.st_uid in (_ROOT, os.geteuid()):
        return None
    return f"{path} belongs to another user ({_user_name(status.st_uid)})"


def _open_to(path: Path, status: os.stat_result) -> str | None:
    """Who besides its owner may write, by its mode; a link has none of its own."""
    if stat.S_ISLNK(status.st_mode):
        return None
    if status.st_mode & stat.S_IWOTH:
        return f"{path} can be written by everyone"
    if status.st_mode & stat.S_IWGRP:
        # The group's bit is also what an access control list grants at most.
        if _attribute(path, _ACCESS):
            return f"{path} can be written by others, through an access control list"
        if not _is_own_group(status.st_gid, os.geteuid()):
            return f"{path} can be written by group {_group_name(status.st_gid)}"
    return None


def _inherited(path: Path) -> str | None:
    """What a default access control list lets others do with files that are made in a folder."""
    entries = _attribute(path, _DEFAULT)[_ACL_HEAD:]
    for kind, rights, _ in struct.iter_unpack("<HHI", entries):
        if rights & _MAY_WRITE and kind not in (_OWN_ENTRY, _MASK_ENTRY):
            return f"{path} lets others write its new files, through an access control list"
    return None


def _attribute(path: Path, name: str) -> bytes:
    try:
        return os.getxattr(path, name)
    except (AttributeError, OSError):  # none there, or none on this system
        return b""


@cache
def _is_own_group(group: int, user: int) -> bool:
    """Whether a group is a user's own: named as the user, and with no other member."""
    import grp
    import pwd

    try:
        owner, found = pwd.getpwuid(user), grp.getgrgid(group)
    except KeyError:
        return False
    mine = owner.pw_gid == group and found.gr_name == owner.pw_name
    return mine and set(found.gr_mem) <= {owner.pw_name}


def _user_name(user: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)


def _group_name(group: int) -> str:
    import grp

    try:
        return grp.getgrgid(group).gr_name
    except KeyError:
        return str(group)
