"""`tilewright cache`: shows what is kept on disk, clears it, exports and imports it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tilewright import settings
from tilewright.cli.common import console
from tilewright.cli.optional import Command, Group
from tilewright.files.whole import write_json
from tilewright.inputs.checks import checked_name
from tilewright.planning.classes import record_words
from tilewright.report.sheet import sheet
from tilewright.tuning import exchange

app = typer.Typer(
    name="cache",
    cls=Group,
    no_args_is_help=True,
)


@app.command(cls=Command)
def info() -> None:
    """Where the cache lies, how large it is, and every configuration that beat its default."""
    out = console()
    if (absent := settings.absent_cache()) is not None:
        out.print(f"cache folder {absent}: not there yet", soft_wrap=True)
        return
    out.print(f"cache folder {exchange.home()}", soft_wrap=True)
    table = sheet("parts", ("part", "files", "KiB"))
    for part in exchange.parts():
        table.add_row(part.name, str(part.files), f"{part.bytes / 1024:.0f}")
    out.print(table)
    winners = exchange.winners()
    if not winners:
        out.print("nothing was tuned yet: `tilewright tune`")
        return
    _show_winners(out, [winner for winner in winners if winner.ratio != 1])
    stayed = Counter(
        f"{winner.kernel} on {_device(winner)}" for winner in winners if winner.ratio == 1
    )
    for where, count in stayed.items():
        out.print(f"{where}: the default stayed for {count} more", soft_wrap=True)


def _show_winners(out: Console, winners: list[exchange.Winner]) -> None:
    if not winners:
        return
    heads = ("kernel", "device", "for", "faster", "configuration")
    table = sheet("tuned", heads, "device", "for", "configuration", wrap=True)
    for winner in winners:
        faster = f"{1 / winner.ratio:.2f}x"
        words = record_words(winner.record)
        table.add_row(winner.kernel, _device(winner), words, faster, winner.config)
    out.print(table)


def _device(winner: exchange.Winner) -> str:
    return f"{winner.architecture.rpartition('|')[2]}, {winner.driver}"


@app.command(cls=Command)
def clear(
    part: Annotated[
        list[str] | None,
        typer.Option("--part", metavar="PART", help=f"Only this: {', '.join(exchange.PARTS)}."),
    ] = None,
) -> None:
    """Remove what is cached; it is compiled and measured again when needed, tuned when asked."""
    for name in part or ():
        checked_name("--part", name, exchange.PARTS)
    removed = exchange.clear(tuple(part or exchange.PARTS))
    print(f"removed {removed} files from {exchange.home()}")


@app.command(cls=Command)
def export(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="To write, readable JSON.")],
) -> None:
    """Write every measurement and tuned configuration into one file."""
    document = exchange.export()
    write_json(file, document, "FILE")
    count = sum(len(folder) for folder in document["documents"].values())
    print(f"wrote {count} documents to {file}")


@app.command(name="import", cls=Command)
def import_file(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `export` wrote.")],
) -> None:
    """Merge such a file into this cache: of two tuned configurations the better one stays."""
    count = exchange.import_file(file)
    print(f"merged {count} documents into {exchange.home()}")
