"""A cache folder is used only where nobody else may write it, by any way there is to write it."""

from __future__ import annotations

import contextlib
import os
import pickle
import stat
import struct
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tilewright
from tilewright import settings
from tilewright.errors import CacheError, CacheWarning
from tilewright.files import cache, trust
from tilewright.tuning import store
from tilewright.tuning.tuner import Tuner

pytestmark = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="modes are POSIX's")
OTHER = 12345  # a user and a group that are nobody's here
needs_root = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root makes others' files"
)


def folder_below(path: Path, *names: str) -> Path:
    """A folder some levels down, closed to others whatever the umask."""
    for name in names:
        path = path / name
        path.mkdir(mode=0o755, exist_ok=True)
    return path


def by_mode(mode: int, level: int) -> Callable[[Path], Path]:
    """a/b/cache, of which one level has a mode."""

    def make(root: Path) -> Path:
        cache = folder_below(root, "a", "b", "cache")
        (cache, cache.parent, cache.parent.parent)[level].chmod(mode)
        return cache

    return make


def by_owner(level: int) -> Callable[[Path], Path]:
    def make(root: Path) -> Path:
        cache = folder_below(root, "a", "b", "cache")
        os.chown((cache, cache.parent, cache.parent.parent)[level], OTHER, -1)
        return cache

    return make


def link_in_open_folder(root: Path) -> Path:
    """What it leads to is closed; who may write here may lead it elsewhere."""
    target = folder_below(root, "closed")
    folder_below(root, "open").chmod(0o777)
    (root / "open" / "cache").symlink_to(target)
    return root / "open" / "cache"


def link_of_another(root: Path) -> Path:
    target = folder_below(root, "closed")
    (root / "cache").symlink_to(target)
    os.lchown(root / "cache", OTHER, OTHER)
    return root / "cache"


def link_into_open_folder(root: Path) -> Path:
    folder_below(root, "open", "target")
    (root / "open").chmod(0o777)
    (root / "cache").symlink_to("open/target")
    return root / "cache"


def way_through_open_folder_and_back(root: Path) -> Path:
    """`open/link/../cache`: whoever moves the link moves the folder above what it leads to."""
    folder_below(root, "closed", "inner")
    folder_below(root, "closed", "cache")
    folder_below(root, "open").chmod(0o777)
    (root / "open" / "link").symlink_to(root / "closed" / "inner")
    return root / "open" / "link" / ".." / "cache"


def access_list(root: Path) -> Path:
    """The group is the user's own, but a list grants another user what the group may."""
    cache = folder_below(root, "cache")
    entries = [(1, 7, 2**32 - 1), (2, 7, OTHER), (4, 5, 2**32 - 1), (0x10, 7, 2**32 - 1)]
    set_list(cache, "system.posix_acl_access", [*entries, (0x20, 5, 2**32 - 1)])
    return cache


def inherited_list(root: Path) -> Path:
    cache = folder_below(root, "cache")
    entries = [(1, 7, 2**32 - 1), (2, 7, OTHER), (4, 5, 2**32 - 1), (0x10, 7, 2**32 - 1)]
    set_list(cache, "system.posix_acl_default", [*entries, (0x20, 5, 2**32 - 1)])
    return cache


def set_list(path: Path, name: str, entries: list[tuple[int, int, int]]) -> None:
    content = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    try:
        os.setxattr(path, name, content)
    except (AttributeError, OSError):
        pytest.skip("no access control lists here")


REFUSED: dict[str, Callable[[Path], Path]] = {
    "everyone's": by_mode(0o777, 0),
    "everyone's, sticky": by_mode(0o1777, 0),
    "parent is everyone's": by_mode(0o777, 1),
    "grandparent is everyone's": by_mode(0o777, 2),
    "grandparent is everyone's to write, not to list": by_mode(0o733, 2),
    "link in an open folder": link_in_open_folder,
    "link into an open folder": link_into_open_folder,
    "by way of an open folder": way_through_open_folder_and_back,
    "an access control list": access_list,
    "a list that new files inherit": inherited_list,
}
REFUSED_OF_OTHERS: dict[str, Callable[[Path], Path]] = {
    "another's": by_owner(0),
    "parent is another's": by_owner(1),
    "grandparent is another's": by_owner(2),
    "another's link": link_of_another,
}


def group_of_others(root: Path) -> Path:
    cache = folder_below(root, "cache")
    os.chown(cache, -1, OTHER)
    cache.chmod(0o775)
    return cache


REFUSED_OF_OTHERS["another group's"] = group_of_others


def check_refused(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One warning, no folder, nothing read from it and nothing left in it."""
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(cache))
    with pytest.warns(CacheWarning, match=r"is not used.*TILEWRIGHT_CACHE") as caught:
        assert settings.cache_folder() is None
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # one warning is enough
        store.save("key", {"answer": 42})
        assert store.load("key") == {}
        assert not settings.code_folder("numba-0").is_relative_to(cache.resolve())
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize("make", REFUSED.values(), ids=REFUSED.keys())
def test_a_folder_that_others_may_change_is_refused_with_a_warning(
    make: Callable[[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_refused(make(tmp_path), monkeypatch)


@needs_root
@pytest.mark.parametrize("make", REFUSED_OF_OTHERS.values(), ids=REFUSED_OF_OTHERS.keys())
def test_a_folder_that_belongs_to_others_is_refused_with_a_warning(
    make: Callable[[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_refused(make(tmp_path), monkeypatch)


def closed_link(root: Path) -> Path:
    (root / "cache").symlink_to(folder_below(root, "a", "b"))
    return root / "cache"


ACCEPTED: dict[str, Callable[[Path], Path]] = {
    "closed": by_mode(0o700, 0),
    "readable by others": by_mode(0o755, 0),
    "below a sticky folder, as /tmp": by_mode(0o1777, 1),
    "a link in closed folders": closed_link,
    "not there yet": lambda root: root / "new" / "cache",
}


@pytest.mark.parametrize("make", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_a_folder_that_its_user_alone_may_change_is_used(
    make: Callable[[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = make(tmp_path)
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(cache))
    store.save("key", {"answer": 42})
    assert store.load("key") == {"answer": 42}
    assert (cache / "measured").is_dir()


def test_a_group_of_its_user_alone_is_no_one_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Debian and Fedora make users, whose umask is then 002."""
    cache = by_mode(0o775, 0)(tmp_path)
    monkeypatch.setattr(trust, "_is_own_group", lambda group, user: True)
    assert trust.why_untrusted(cache) is None
    monkeypatch.setattr(trust, "_is_own_group", lambda group, user: False)
    assert "can be written by group" in str(trust.why_untrusted(cache))


def test_whatever_the_umask_folders_are_made_for_their_user_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is kept has one user, so that its files need be read by no other."""
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "new" / "cache"))
    before = os.umask(0)
    try:
        store.save("key", {})
        store.update(store.TUNED, "name", lambda _: {})
        settings.code_folder("numba-0")
    finally:
        os.umask(before)
    made = [path for path in (tmp_path / "new").rglob("*") if path.is_dir()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in made} == {0o700}
    assert {path.name for path in made} == {"cache", "measured", "tuned", "numba-0"}
    (document,) = (tmp_path / "new" / "cache" / "measured").iterdir()
    assert stat.S_IMODE(document.stat().st_mode) == 0o600


def test_a_part_that_others_may_write_is_not_used(own_store: Path) -> None:
    store.save("key", {"answer": 42})
    (own_store / "measured").chmod(0o777)
    tilewright.forget()
    with pytest.warns(CacheWarning, match="measured can be written by everyone"):
        assert store.load("key") == {}


def test_a_file_that_others_may_have_written_is_set_aside(own_store: Path) -> None:
    store.save("key", {"answer": 42})
    (path,) = (own_store / "measured").iterdir()
    path.chmod(0o666)
    with pytest.warns(CacheWarning, match="can be written by everyone; set aside"):
        assert store.load("key") == {}


@pytest.mark.parametrize(
    "plant", [os.mkfifo, lambda path: path.symlink_to("/dev/zero"), Path.mkdir]
)
def test_what_is_no_file_is_neither_waited_for_nor_read(
    plant: Callable[[Path], None], own_store: Path
) -> None:
    store.save("key", {"answer": 42})
    (path,) = (own_store / "measured").iterdir()
    path.unlink()
    plant(path)
    with pytest.warns(CacheWarning):
        assert store.load("key") == {}


@needs_root
def test_another_users_read_takes_nothing_out_of_use(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setenv("TILEWRIGHT_CACHE", folder)
        store.save("key", {"answer": 42})
        for path in (Path(folder), Path(folder, "measured")):
            path.chmod(0o755)
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                os.setgid(OTHER)
                os.setuid(OTHER)
                tilewright.forget()
                store.load("key")
            os._exit(0)
        os.waitpid(child, 0)
        assert store.load("key") == {"answer": 42}


def test_a_library_that_another_put_among_the_drivers_is_not_loaded(
    own_store: Path, opencl_device: tilewright.Device
) -> None:
    """The loader is given a folder that holds our own entries only."""
    code = "import tilewright; tilewright.devices()"
    subprocess.run([sys.executable, "-c", code], check=True)
    (vendors,) = own_store.glob("vendors-*")
    planted = vendors / "99.icd"
    planted.write_text("/nowhere/planted.so\n")
    subprocess.run([sys.executable, "-c", code], check=True)
    assert not planted.exists()


class Planted:
    """Says so when it is unpickled."""

    def __reduce__(self) -> tuple[Callable[..., None], tuple[str]]:
        return print, ("unpickled",)


def test_numbas_pickles_are_not_read_where_others_may_have_written_them(own_store: Path) -> None:
    pytest.importorskip("numba")
    from tilewright.backends.host.kept_code import MAGIC

    code = (
        "import numpy as np; from tilewright import onebit; x = onebit.pack(np.ones((8, 64)));"
        "print(onebit.matmul(x, x, kernel='numba')[0, 0])"
    )
    environment = {**os.environ, "TILEWRIGHT_CACHE": str(own_store)}

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )

    assert run().stdout == "64\n"
    files = list(own_store.rglob("*.nbc"))
    assert files
    for file in files:
        file.write_bytes(cache.sealed(MAGIC, pickle.dumps(Planted())))
        file.chmod(0o666)
    done = run()
    assert done.stdout == "64\n"
    assert "can be written by everyone" in done.stderr


def test_a_relative_folder_stays_where_it_was(tmp_path: Path) -> None:
    code = (
        "import os; from tilewright.tuning import store; store.save('key', {'x': 1});"
        "os.chdir('elsewhere'); print(store.load('key'), os.listdir())"
    )
    (tmp_path / "elsewhere").mkdir()
    for late in ("", "import tilewright, os; os.chdir('elsewhere'); os.chdir('..');"):
        done = subprocess.run(
            [sys.executable, "-c", late + code],
            cwd=tmp_path,
            env={**os.environ, "TILEWRIGHT_CACHE": "cache"},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout == "{'x': 1} []\n", done.stderr
    assert (tmp_path / "cache" / "measured").is_dir()


def test_a_process_that_is_started_has_the_same_cache_wherever_it_starts(
    own_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert settings.for_children()["TILEWRIGHT_CACHE"] == str(own_store)
    monkeypatch.setenv("TILEWRIGHT_CACHE", "off")
    assert settings.for_children()["TILEWRIGHT_CACHE"] == "off"
    monkeypatch.setenv("TILEWRIGHT_CACHE", os.path.relpath(own_store))
    assert Path(settings.for_children()["TILEWRIGHT_CACHE"]).resolve() == own_store.resolve()
    assert Path(settings.for_children()["TILEWRIGHT_CACHE"]).is_absolute()


def test_tuning_says_why_there_is_no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = by_mode(0o777, 0)(tmp_path)
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(cache))
    with pytest.warns(CacheWarning):
        settings.cache_folder()
    with pytest.raises(CacheError, match=r"can be written by everyone.*tuning needs a folder"):
        Tuner.run(object.__new__(Tuner), [])


def test_without_a_cache_a_process_has_a_folder_that_goes_with_it() -> None:
    code = (
        "import os, sys; from tilewright import settings; folder = settings.code_folder('numba-0');"
        "child = os.fork()\n"
        "if child == 0: sys.exit()\n"
        "os.waitpid(child, 0); print(folder, folder.is_dir())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "TILEWRIGHT_CACHE": "off"},
        capture_output=True,
        text=True,
        check=True,
    )
    folder, there = done.stdout.split()
    assert there == "True"  # a child that ended did not take it along
    assert not Path(folder).exists()


def test_folders_for_temporary_files_that_others_could_replace_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o777)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    settings.private_folder.cache_clear()
    with pytest.raises(CacheError, match=r"TMPDIR=.*can be written by everyone"):
        settings.private_folder()
    assert not list(tmp_path.iterdir())
    settings.private_folder.cache_clear()


@pytest.mark.parametrize("there", [True, False], ids=["anyone's", "none"])
def test_products_are_right_where_no_folder_takes_files(there: bool, tmp_path: Path) -> None:
    code = (
        "import tempfile, sys; tempfile.tempdir = sys.argv[1];"
        "import numpy as np, tilewright as tw; a = np.ones((5, 7), np.float32);"
        "print(tw.matmul(a, a.T)[0, 0], tw.grouped_matmul([a] * 99, [a.T] * 99)[98][0, 0]);"
        "from tilewright import settings; print([settings.code_folder(name) for name in 'ab']);"
        "from tilewright.backends.host import compiled;"
        "compiled.available() and compiled.kernels('routes')"
    )
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine").chmod(0o777)
    folder = tmp_path / ("mine" if there else "gone")
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)],
        env={**os.environ, "TILEWRIGHT_CACHE": "off"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "7.0 7.0\n[None, None]\n"
    assert done.stderr.count("CacheWarning") == 1


def test_the_product_is_right_where_the_cache_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(by_mode(0o777, 0)(tmp_path)))
    a = np.ones((5, 7), np.float32)
    tilewright.forget()
    with pytest.warns(CacheWarning, match="is not used"):
        settings.cache_folder()
    assert (tilewright.matmul(a, a.T) == 7).all()
