"""`tilewright doctor`: a machine proves itself in two minutes, and says what it lacks."""

from __future__ import annotations

import time
from typing import Annotated

import typer
from rich.table import Table

from tilewright.cli.bars import working
from tilewright.cli.common import JsonOption, console
from tilewright.cli.results import check_outputs
from tilewright.errors import ArgumentError
from tilewright.files.whole import write_json
from tilewright.inputs.devices import devices as all_devices
from tilewright.report import doctor as doctoring
from tilewright.report.sheet import sheet
from tilewright.wording import time_text


def doctor(
    json: JsonOption = None,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON Schema of --json, and nothing else.")
    ] = False,
    seconds: Annotated[
        float, typer.Option("--seconds", metavar="S", help="Time for all devices together.")
    ] = doctoring.SECONDS,
) -> None:
    """Multiply on every device, check results and time them; say what is missing and how to get it.

    Examples:

    - `tilewright doctor`
    - `tilewright doctor --json phone.json`

    Each device works in a process of its own: one whose driver ends it, or never answers, is told
    of, and the others are asked all the same. Ends with 1 where a result was wrong or a device
    failed. Nothing in the file tells who you are.
    """
    if schema:
        print(doctoring.SCHEMA_FILE.read_text(encoding="utf-8"), end="")
        return
    if not 1 <= seconds <= 3600:
        raise ArgumentError(f"--seconds={seconds:g}: accepted are 1 to 3600")
    check_outputs(json, None)
    began = time.monotonic()
    with working("looking for devices") as say:
        found = all_devices()
        examined = tuple(
            doctoring.examine(found, seconds, lambda device: say(f"asking {device.id}"))
        )
    packages = doctoring.packages()
    advice = doctoring.advice(packages, examined)
    report = doctoring.Report(packages, examined, advice, time.monotonic() - began)
    out = console()
    out.print(_results(report))
    out.print(_timings(report))
    for line in report.advice:
        out.print(f"[bold]missing or ill[/bold]  {line}", soft_wrap=True)
    if json is not None:
        write_json(json, doctoring.document(report))
        print(f"wrote {json}")
    if any(one.wrong or one.failure for one in examined):
        raise typer.Exit(1)


def _results(report: doctoring.Report) -> Table:
    table = sheet("Results", ("device", "name", "right", "wrong", "refused"), "name", wrap=True)
    for one in report.devices:
        wrong = one.failure or str(len(one.wrong))
        refused = str(len(one.refused))
        table.add_row(one.device.id, one.device.name, str(one.right), wrong, refused)
    return table


def _timings(report: doctoring.Report) -> Table:
    heads = ("device", "call", "ours", "beside", "theirs", "times as fast")
    table = sheet("Times, medians, in turns", heads, "call", "beside", wrap=True)
    for one in report.devices:
        for timing in () if one.idle else one.timings:  # those of an idle one are another's
            mine, theirs = (time_text(ms / 1e3) for ms in (timing.ours_ms, timing.peer_ms))
            ratio = f"{timing.ratio:.2f}"
            table.add_row(one.device.id, timing.name, mine, timing.peer, theirs, ratio)
    return table
