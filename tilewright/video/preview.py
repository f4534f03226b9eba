"""Three pictures of a film before and after, as one image, without making the film.

Where something is made unseen, after alone.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.files.whole import replacing
from tilewright.video.compare import busiest, image, sheet
from tilewright.video.decode import decoded
from tilewright.video.flow import Clock
from tilewright.video.job import Job
from tilewright.video.line import Line
from tilewright.video.look import Frame

_PLACES = (0.2, 0.5, 0.8)
_SIDE = 480  # samples of the part that is shown: that in which most is changed


def preview(job: Job) -> Path:
    """Write OUT.preview.png beside the output, as the stages make it, and give its path.

    Raises FileError where it cannot be written, and what the job's stages do.
    """
    path = job.out.with_name(f"{job.out.name}.preview.png")
    line, rows, total = Line(job, Clock()), [], len(job.film.times)
    with replacing(path, "out") as temporary:
        for first in sorted({int(place * total) for place in _PLACES}):
            line.job, number = job.stretch(first, 1)
            with (
                closing(line.pictures([number])) as made,
                closing(decoded(job.film, job.film.times[first])) as source,
            ):
                before, after = next(source), next(made)
            one, other = _parts(before, after)
            rows.append((f"{float(before.time):.2f} s", None if job.hidden else one, other))
        sheet(rows).save(temporary, "PNG")
    return path


def _parts(before: Frame, after: Frame) -> tuple[Any, Any]:
    """The same part of both, as large as afterwards."""
    size = (after.look.width, after.look.height)
    images = [image(frame, size) for frame in (before, after)]
    place = busiest(np.asarray(images[0]), np.asarray(images[1]), _SIDE)
    return images[0].crop(place), images[1].crop(place)
