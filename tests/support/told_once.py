"""What a worker of pytest-xdist tells of a test is one report, and that the test is done.

It tells six things: that a test starts, how it is set up, called and taken down, that it ends, and
that its place is free. Of 18,000 tests to write and to read them took 17 s of two processes; where
nobody asks how long each part took, four of them change nothing that is shown.
"""

from __future__ import annotations

from typing import Any

import pytest


def tell_less(config: pytest.Config) -> None:
    """From now on this worker leaves out what nobody who asked for `config` reads."""
    asked = config.option
    if asked.verbose > 0 or asked.durations or getattr(asked, "xmlpath", None):
        return
    for plugin in config.pluginmanager.get_plugins():
        if plugin.__class__.__name__ == "WorkerInteractor":
            plugin.sendevent = _without_the_obvious(plugin.sendevent)


def _without_the_obvious(send: Any) -> Any:
    def send_some(name: str, **what: Any) -> None:
        if name in ("logstart", "logfinish"):
            return
        if name == "testreport" and _obvious(what["data"]):
            return
        send(name, **what)

    return send_some


def _obvious(report: dict[str, Any]) -> bool:
    """Of a test that was set up, or taken down, and had nothing to say."""
    return report["when"] != "call" and report["outcome"] == "passed"
