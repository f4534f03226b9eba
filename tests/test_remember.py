"""What is remembered is bounded, shared by threads, and gone when its owner is."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Iterator

import numpy as np
import pytest

import tilewright
from tilewright import remember
from tilewright.remember import Shelf, once


@pytest.fixture
def shelf() -> Iterator[Shelf[object, object]]:
    made: Shelf[object, object] = Shelf("of a test", most=10_000)
    yield made
    del remember._shelves["of a test"]


class Owner:
    pass


def test_what_was_kept_is_found(shelf: Shelf[object, object]) -> None:
    value = object()
    assert shelf.get("key") is None
    assert shelf.keep("key", value, size=10) is value
    assert shelf.get("key") is value
    assert "key" in shelf
    assert len(shelf) == 1


def test_the_first_value_under_a_key_stays(shelf: Shelf[object, object]) -> None:
    first = shelf.keep("key", object())
    before = shelf.bytes
    assert shelf.keep("key", object()) is first
    assert shelf.bytes == before


@pytest.mark.parametrize("size", [0, 100, 3000])
def test_bytes_never_pass_the_limit(shelf: Shelf[object, object], size: int) -> None:
    for key in range(500):
        shelf.keep(key, object(), size=size)
        assert shelf.bytes <= shelf.most
        assert key in shelf


def test_what_is_larger_than_the_shelf_is_not_kept(shelf: Shelf[object, object]) -> None:
    shelf.keep("small", 1)
    assert shelf.keep("large", 2, size=shelf.most) == 2
    assert "large" not in shelf
    assert "small" in shelf


def test_what_is_used_outlives_what_is_not(shelf: Shelf[object, object]) -> None:
    shelf.keep("used", 1, size=1000)
    for key in range(100):
        assert shelf.get("used") == 1
        shelf.keep(key, 2, size=1000)


def test_an_entry_dies_with_any_of_its_owners(shelf: Shelf[object, object]) -> None:
    one, other = Owner(), Owner()
    shelf.keep("key", 1, size=100, owners=(one, other))
    shelf.keep("mine", 2)
    del one
    gc.collect()
    assert "key" not in shelf
    assert "mine" in shelf


def test_an_owner_that_dies_late_does_not_take_a_newer_value(shelf: Shelf[object, object]) -> None:
    owner = Owner()
    shelf.keep("key", 1, owners=(owner,))
    shelf.drop("key")
    shelf.keep("key", 2)
    del owner
    gc.collect()
    assert shelf.get("key") == 2


def lost(*_: object) -> None:
    """What becomes of a callback of weakref's in which Ctrl-C arrives: nothing is dropped."""


def test_an_entry_is_its_owners_and_not_anothers_of_the_same_number(
    shelf: Shelf[object, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Shelf, "_drop", lost)
    one, other = Owner(), Owner()
    shelf.keep("number", 1, size=100, owners=(one,))
    assert shelf.get("number", one) == 1
    assert shelf.get("number", other) is None
    del one
    assert shelf.get("number", other) is None
    assert shelf.keep("number", 2, size=200, owners=(other,)) == 2
    assert shelf.get("number", other) == 2
    assert shelf.bytes == sum(entry.size for entry in shelf._entries.values())


def test_a_value_is_made_once_and_made_again_after_drop(shelf: Shelf[object, object]) -> None:
    made: list[int] = []

    def make() -> int:
        made.append(1)
        return len(made)

    assert [shelf.found("key", make) for _ in range(3)] == [1, 1, 1]
    shelf.drop("key")
    assert shelf.found("key", make) == 2


def test_forget_empties_every_shelf(shelf: Shelf[object, object]) -> None:
    shelf.keep("key", 1, size=100)
    a = np.ones((80, 80), np.float32)
    tilewright.matmul(a, a)
    tilewright.grouped_matmul([a], [a])
    tilewright.forget()
    assert {one.name: (len(one), one.bytes) for one in remember.shelves() if len(one)} == {}
    np.testing.assert_array_equal(tilewright.matmul(a, a), a @ a)


def test_two_shelves_may_not_share_a_name(shelf: Shelf[object, object]) -> None:
    with pytest.raises(ValueError, match="of a test"):
        Shelf("of a test", most=1)


def test_threads_that_keep_drop_and_forget_lose_no_byte(shelf: Shelf[object, object]) -> None:
    failed: list[BaseException] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        try:
            for _ in range(3000):
                key, act = int(rng.integers(40)), int(rng.integers(20))
                if act == 0:
                    shelf.clear()
                elif act < 4:
                    shelf.drop(key)
                elif act < 12:
                    shelf.keep(key, key, size=int(rng.integers(2000)))
                else:
                    assert shelf.get(key) in (None, key)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert 0 <= shelf.bytes <= shelf.most
    assert shelf.bytes == sum(entry.size for entry in shelf._entries.values())
    shelf.clear()
    assert shelf.bytes == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_forked_while_the_shelf_is_locked_can_use_it(shelf: Shelf[object, object]) -> None:
    with shelf._lock:
        child = os.fork()
        if not child:
            worker = threading.Thread(target=shelf.keep, args=("key", 1), daemon=True)
            worker.start()
            worker.join(60)
            os._exit(0 if "key" in shelf else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


class _Made:
    def __init__(self, gate: threading.Event | None = None, met: threading.Event | None = None):
        self.gate, self.met = gate, met

    @once
    def value(self) -> object:
        """Made behind the gate, where there is one."""
        if self.gate and self.met:
            self.met.set()
            self.gate.wait(600)
        return object()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_forked_while_a_property_is_made_makes_those_of_other_objects() -> None:
    gate, met = threading.Event(), threading.Event()
    maker = threading.Thread(target=lambda: _Made(gate, met).value)
    maker.start()
    assert met.wait(600)
    child = os.fork()
    if child == 0:
        signal.alarm(300)
        one = _Made()
        os._exit(0 if one.value is one.value else 1)
    status = os.waitpid(child, 0)[1]
    gate.set()
    maker.join()
    assert status == 0


def test_a_property_is_made_once_for_each_object_and_documented() -> None:
    one, other = _Made(), _Made()
    assert one.value is one.value
    assert one.value is not other.value
    assert _Made.value.__doc__ == "Made behind the gate, where there is one."
