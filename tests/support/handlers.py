"""Interrupts a call as signals' handlers and finalizers may: at each call and return within it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def interrupted(run: Callable[[], T], handler: Callable[[], bool]) -> T:
    """What `run` gives; `handler`, which nothing interrupts, is called as long as it says so."""

    def interrupt(*_: object) -> None:
        sys.setprofile(None)
        if handler():
            sys.setprofile(interrupt)

    sys.setprofile(interrupt)
    try:
        return run()
    finally:
        sys.setprofile(None)
