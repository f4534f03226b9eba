"""What is asked of Dask's workers, of those for films and those for batches.

Dask is imported by who has a client; here are its answers as errors of ours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.errors import DeviceError
from tilewright.wording import in_one_line

NO_WORKER = "no worker there; accepted are schedulers with one and more"
PATIENCE = 30  # seconds for a scheduler to answer, and for its first worker


def asked(
    client: Any, question: Callable[..., Any], *given: Any, label: str, needs: str, **how: Any
) -> dict[str, Any]:
    """What each worker answers, by its address.

    Raises DeviceError where there is none, or where one cannot answer: `needs` is what brings it.
    """
    try:
        client.wait_for_workers(1, timeout=PATIENCE)
    except TimeoutError:
        raise DeviceError(f"{label}: {NO_WORKER}") from None
    found: dict[str, Any] = client.run(question, *given, on_error="return", **how)
    for worker, answer in found.items():
        if isinstance(answer, BaseException):
            raise DeviceError(
                f"{label}: {worker} cannot work ({in_one_line(answer)}); accepted are workers with"
                f" {needs} installed"
            )
    return found


def result(future: Any, label: str, *, killed: Callable[[str], Exception], lost: str = "") -> Any:
    """What a task gave, and its memory there is free.

    Raises `killed` of the reason where workers died again and again over it, DeviceError where the
    scheduler is lost, and what the task raised.
    """
    import distributed

    try:
        return future.result()
    except distributed.KilledWorker as error:
        raise killed(in_one_line(error)) from None
    except (distributed.CancelledError, distributed.comm.CommClosedError, OSError) as error:
        raise DeviceError(f"{label}: lost ({in_one_line(error)}){lost}") from None
    finally:
        future.release()
