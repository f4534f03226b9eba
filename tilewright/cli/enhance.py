"""`tilewright enhance`: a film in, a film out, with progress that says what holds it back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn

from tilewright.cli import bars, common
from tilewright.cli import enhance_detect as detecting
from tilewright.cli import enhance_people as people
from tilewright.cli import enhance_said as said
from tilewright.errors import ArgumentError
from tilewright.video import pictures
from tilewright.video.forecast import forecast
from tilewright.video.fusion import NAMES
from tilewright.video.making import check_workers, made, planned
from tilewright.video.page import asked, check_asked
from tilewright.video.preview import preview as previewed
from tilewright.video.stages.contract import Stage
from tilewright.video.stages.contrast import Contrast
from tilewright.video.stages.deblock import Deblock
from tilewright.video.stages.dehaze import Dehaze
from tilewright.video.stages.denoise import Denoise
from tilewright.video.stages.interpolate import Interpolate
from tilewright.video.stages.low_light import LowLight
from tilewright.video.stages.sharpen import Sharpen
from tilewright.video.stages.ten_bit import TenBit
from tilewright.video.stages.upscale import Upscale
from tilewright.wording import counted

_STAGES, _NETWORKS = "Stages: what is done to pictures, in this order", "Networks"
_CODING, _RUNS = "How the film is written", "How it runs, and what is said of it"


def enhance(
    source: Annotated[Path, typer.Argument(metavar="IN", help="A film, or pictures.")],
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="OUT", help=".mp4, .m4v, .mov, .mkv, .webm, or a picture."
        ),
    ],
    auto: Annotated[
        bool,
        typer.Option(
            "--auto",
            help="Stages that `tilewright analyse` advises, each in its scenes.",
            rich_help_panel=_STAGES,
        ),
    ] = False,
    deblock: Annotated[
        bool,
        typer.Option(
            "--deblock",
            help="Take out what compression did, by a network.",
            rich_help_panel=_STAGES,
        ),
    ] = False,
    denoise: Annotated[
        str | None,
        typer.Option(
            "--denoise",
            metavar="[SIGMA]",
            help="Take noise out by a network: deviation, 0 to 75 of 255; alone: estimated.",
            rich_help_panel=_STAGES,
        ),
    ] = None,
    low_light: Annotated[
        float | None,
        typer.Option(
            "--low-light",
            metavar="[AMOUNT]",
            help="Make dark pictures light, 0 to 1 of the way; alone: 1.",
            rich_help_panel=_STAGES,
        ),
    ] = None,
    dehaze: Annotated[
        float | None,
        typer.Option(
            "--dehaze",
            metavar="[AMOUNT]",
            help="Take haze out, 0 to 1; alone: 0.9.",
            rich_help_panel=_STAGES,
        ),
    ] = None,
    contrast: Annotated[
        float | None,
        typer.Option(
            "--contrast",
            metavar="[AMOUNT]",
            help="More contrast, 0 to 1; alone: 0.6.",
            rich_help_panel=_STAGES,
        ),
    ] = None,
    interpolate: Annotated[
        str | None,
        typer.Option(
            "--interpolate",
            metavar="2|4|RATE",
            help="More pictures by motion: 2 or 4 times as many, or so many a second, as 60.",
            rich_help_panel=_STAGES,
        ),
    ] = None,
    interpolate_net: Annotated[
        str | None,
        typer.Option(
            "--interpolate-net",
            metavar="NAME",
            help="Of --interpolate. none (the default): mixed by time alone; fuse-s: by a network,"
            " on the host (-d host where there is a GPU).",
            rich_help_panel=_NETWORKS,
        ),
    ] = None,
    upscale: Annotated[
        int | None,
        typer.Option(
            "--upscale",
            metavar="2",
            help="Twice as wide and high, by a network.",
            rich_help_panel=_STAGES,
        ),
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(
            "--size",
            help="s (the default), m, or l (upscale alone): slower and better.",
            rich_help_panel=_NETWORKS,
        ),
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(
            "--dtype",
            help="float32 (the default), or int8: about twice as fast.",
            rich_help_panel=_NETWORKS,
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            "--model",
            metavar="FILE",
            help="Upscale by this network of luma: .onnx or .npz.",
            rich_help_panel=_NETWORKS,
        ),
    ] = None,
    sharpen: Annotated[
        float | None,
        typer.Option(
            "--sharpen",
            metavar="[AMOUNT]",
            help="Sharpen luma, 0 to 4; alone: 0.6.",
            rich_help_panel=_STAGES,
        ),
    ] = None,
    ten_bit: Annotated[
        bool,
        typer.Option(
            "--ten-bit",
            help="Ten bits a sample, steps of ramps filled in.",
            rich_help_panel=_STAGES,
        ),
    ] = False,
    detect: detecting.DetectOption = None,
    draw: detecting.DrawOption = False,
    detections: detecting.DetectionsOption = None,
    detect_model: detecting.ModelOption = None,
    names: detecting.NamesOption = None,
    score: detecting.ScoreOption = None,
    tiles: detecting.TilesOption = False,
    blur: people.Blurred = None,
    blur_box: people.Boxes = None,
    background: people.Behind = None,
    plate: people.Plate = None,
    key: people.Key = None,
    matte_model: people.Model = None,
    matte: people.Matte = None,
    device: common.DeviceOption = None,
    codec: Annotated[
        str | None,
        typer.Option(
            "--codec",
            help="h264, h265, av1, vp9 or ffv1; left out: vp9 for .webm, else h264.",
            rich_help_panel=_CODING,
        ),
    ] = None,
    crf: Annotated[
        int | None,
        typer.Option(
            "--crf",
            metavar="N",
            help="Less is better and larger; left out: h264 18, h265 20, av1 and vp9 28.",
            rich_help_panel=_CODING,
        ),
    ] = None,
    workers: Annotated[
        str | None,
        typer.Option(
            "--workers",
            metavar="N|ADDRESS",
            help="Processes here, or a Dask scheduler's address.",
            rich_help_panel=_RUNS,
        ),
    ] = None,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Replace OUT where it exists.", rich_help_panel=_RUNS),
    ] = False,
    report: Annotated[
        Path | None,
        typer.Option(
            "--report",
            metavar="FILE.html",
            help="Write a page: before and after, times, licences.",
            rich_help_panel=_RUNS,
        ),
    ] = None,
    reference: Annotated[
        Path | None,
        typer.Option(
            "--reference",
            metavar="FILE",
            help="For that page, the film as it should be: PSNR, SSIM.",
            rich_help_panel=_RUNS,
        ),
    ] = None,
    preview: Annotated[
        bool,
        typer.Option(
            "--preview",
            help="Only OUT.preview.png: three pictures before and after, no film.",
            rich_help_panel=_RUNS,
        ),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Only say what would be done, how long it would take, how large it gets.",
            rich_help_panel=_RUNS,
        ),
    ] = False,
) -> None:
    """Make a film out of another, picture by picture; all else of it stays what it is.

    IN may also be a picture (.png, .jpg, .webp), a folder of them or a pattern; OUT of several is a
    folder.

    Sound, subtitles, chapters, attachments, metadata, time stamps and colours are kept. Stopped at
    any moment and called again with the same line it goes on; OUT appears when it is whole.

    Examples:

    - `tilewright enhance film.mp4 -o large.mp4 --upscale 2 --size m`
    - `tilewright enhance film.mp4 -o better.mp4 --auto`
    - `tilewright enhance night.mp4 -o light.mp4 --low-light`
    - `tilewright enhance film.mp4 -o film.mkv --sharpen 0.5 --ten-bit --codec h265 --crf 22`
    - `tilewright enhance film.mp4 -o large.mp4 --upscale 2 --report large.html`
    - `tilewright enhance old.mp4 -o clean.mp4 --deblock --denoise --size m`
    - `tilewright enhance film.mp4 -o smooth.mp4 --interpolate 2`
    - `tilewright enhance field.mp4 -o seen.mp4 --detect ball,bird --draw --detections seen.jsonl`
    - `tilewright enhance talk.mp4 -o soft.mp4 --blur background --plate empty.png`
    - `tilewright enhance street.mp4 -o nameless.mp4 --blur-box 310,420,96,32`
    - `tilewright enhance film.mkv -o copy.mkv --codec ffv1`
    - `tilewright enhance "photos/*.jpg" -o larger --upscale 2 --size l`
    """
    larger = upscale is not None or model is not None
    asked_for = detecting.Asked(
        detect, draw, detections, detect_model, names, score, tiles, device or "auto"
    )
    finding, drawing = asked_for.stages()
    others = bool(finding) or matte_model is not None or interpolate is not None
    stages = _restoring(deblock, denoise, size, dtype, device, larger, others)
    shared = bool(stages)
    stages += [] if low_light is None else [LowLight(low_light)]
    stages += [] if dehaze is None else [Dehaze(dehaze)]
    stages += [] if contrast is None else [Contrast(contrast)]
    stages += finding
    stages += _between(interpolate, interpolate_net, device)
    stages += _upscaling(upscale, size, dtype, model, device, shared)
    stages += [] if sharpen is None else [Sharpen(sharpen)]
    stages += [TenBit()] if ten_bit else []
    stages += drawing
    persons = people.Asked(
        blur, background, plate, key, matte_model, matte, device, tuple(blur_box or ())
    )
    stages = [*people.stages(persons, output), *stages]
    if (found := pictures.pairs(source, output)) is not None:
        _only_films(
            {
                "--interpolate": interpolate,
                "--codec": codec,
                "--crf": crf,
                "--workers": workers,
                "--report": report,
            }
        )
        _only_films(
            {"--reference": reference, "--preview": preview or None, "--auto": auto or None,
             "--detections": detections, "--matte": matte}
        )  # fmt: skip
        _pictures(found, stages, overwrite, dry_run)
        return
    _not_both({"--preview": preview, "--dry-run": dry_run, "--report": report is not None})
    check_workers(_workers(workers))
    check_asked(report, reference)
    there = overwrite or preview
    with bars.looking() as looked:
        job = planned(
            source, output, stages, codec=codec, crf=crf, overwrite=there, auto=auto,
            detections=detections, looked=looked,
        )  # fmt: skip
    if preview:
        print(f"wrote {previewed(job)}")
        return
    beside = people.beside(persons, job, overwrite=overwrite)
    if dry_run:
        print("\n".join([*job.lines(), *(beside.lines() if beside else ())]))
        print("\n".join(said.foreseen(forecast(job))))
        return
    page = asked(report, reference, job)
    if beside is not None:
        with said.going(beside) as seen:
            people.made_beside(beside, seen, _workers(workers))
    with said.going(job) as seen:
        done = made(job, seen, _workers(workers))
    people.ended(persons)
    print("\n".join(said.told(done)))
    if detections is not None:
        print(f"wrote {detections}")
    if page is not None:
        page.write(done)
        print(f"wrote {report}")


def _between(rate: str | None, net: str | None, device: str | None) -> list[Stage]:
    """The stage that makes pictures between pictures, where one is asked for."""
    if rate is None:
        if net is not None:
            raise ArgumentError(
                f"--interpolate-net={net} without --interpolate: accepted is --interpolate 2, 4 or"
                " a rate beside it"
            )
        return []
    return [Interpolate(rate, device=device or "auto", net=net or NAMES[0])]


def _upscaling(
    upscale: int | None,
    size: str | None,
    dtype: str | None,
    model: Path | None,
    device: str | None,
    shared: bool,
) -> list[Stage]:
    """The stage that makes pictures larger, where one is asked for.

    shared: whether other networks take the size and type too.
    """
    if upscale not in (None, 2):
        raise ArgumentError(f"--upscale={upscale}: accepted is 2")
    if model is not None and (size or dtype) and not shared:
        given = "--size" if size else "--dtype"
        raise ArgumentError(f"{given} beside --model: accepted is one of them")
    if (size or dtype) and upscale is None and not shared:
        given = f"--size={size}" if size else f"--dtype={dtype}"
        raise ArgumentError(
            f"{given} without --upscale: accepted is --upscale 2, --deblock or --denoise beside it"
        )
    if model is not None:
        return [Upscale.of_file(model, device or "auto")]
    if upscale is not None:
        return [Upscale(size or "s", dtype or "float32", device or "auto")]
    return []


def _restoring(
    deblock: bool,
    denoise: str | None,
    size: str | None,
    dtype: str | None,
    device: str | None,
    larger: bool,
    others: bool,
) -> list[Stage]:
    """The stages that come first: what they take away would be enlarged. Their largest is m.

    larger: whether pictures are enlarged after them, by networks of that size and type.
    others: whether other stages, with networks or with motion, run on that device.
    """
    if device is not None and not (deblock or denoise is not None or larger or others):
        raise ArgumentError(
            f"--device={device} without a network: accepted is --upscale 2, --model, --deblock,"
            " --denoise or --interpolate beside it"
        )
    if dtype is not None and denoise is not None and not (deblock or larger):
        raise ArgumentError(
            f"--dtype={dtype}: --denoise has float32 alone; accepted is --upscale 2 or --deblock"
            " beside it"
        )
    stages: list[Stage] = []
    own = "m" if size == "l" and larger else size or "s"
    if deblock:
        stages.append(Deblock(own, dtype or "float32", device or "auto"))
    if denoise is not None:
        stages.append(Denoise(_sigma(denoise), own, device=device or "auto"))
    return stages


def _sigma(given: str) -> float | None:
    if given == "auto":
        return None
    try:
        found = float(given)
    except ValueError:
        found = -1.0
    if not 0 <= found <= 75:
        raise ArgumentError(f"--denoise={given}: accepted are 0 to 75, and auto")
    return found


def _workers(given: str | None) -> int | str | None:
    """A number, or an address."""
    return int(given) if given is not None and given.removeprefix("-").isdecimal() else given


def _not_both(options: Mapping[str, bool]) -> None:
    """Raise ArgumentError for options of which one leaves nothing to the other."""
    given = [name for name, wanted in options.items() if wanted]
    if len(given) > 1:
        raise ArgumentError(f"{given[0]} beside {given[1]}: accepted is one of them")


def _only_films(options: Mapping[str, object]) -> None:
    """Raise ArgumentError for options that pictures have no use for."""
    for name, given in options.items():
        if given is not None:
            raise ArgumentError(
                f"{name}: of films alone; accepted for pictures is a line without it"
            )


def _pictures(
    found: Sequence[pictures.Pair],
    stages: Sequence[Stage],
    overwrite: bool,
    dry_run: bool,
) -> None:
    if dry_run:
        pictures.check(found, stages, overwrite=overwrite)
        names = ", ".join(stage.name for stage in stages) or "no stage"
        print("\n".join(f"{pair.source}: {names} -> {pair.out}" for pair in found))
        return
    bar = bars.bar_of(BarColumn(), MofNCompleteColumn())
    task = bar.add_task("", total=len(found))

    def report(done: int) -> None:
        bar.update(task, completed=done)
        bar.refresh()

    with bar:
        pictures.enhanced(found, stages, overwrite=overwrite, progress=report)
    where = found[0].out if len(found) == 1 else found[0].out.parent
    print(f"wrote {where}: {counted(len(found), 'picture')}")
