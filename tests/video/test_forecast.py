"""What a dry run says a film would take is near what it takes."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

pytest.importorskip("av")
pytest.importorskip("numba")

from tests.support.films import Making, film
from tilewright import video
from tilewright.video.forecast import forecast
from tilewright.video.making import planned


@pytest.mark.parametrize(("codec", "count"), [("ffv1", 130), ("h264", 30), ("h264", 1)])
def test_the_size_is_near_what_is_written_and_every_part_has_its_time(
    tmp_path: Path, codec: str, count: int
) -> None:
    make = Making(time_base=Fraction(1, 1000), times=range(0, 40 * count, 40))
    source, out = film(tmp_path / "in.mkv", make), tmp_path / "out.mkv"
    found = forecast(planned(source, out, [video.Sharpen(0.5)], codec=codec))
    assert list(tmp_path.iterdir()) == [source]
    made = video.enhance(source, out, [video.Sharpen(0.5)], codec=codec)
    assert set(found.parts) == set(made.worked) == {"decode", "sharpen", "encode"}
    assert 0 < found.tried < 70
    assert found.seconds > 0
    assert found.bytes == pytest.approx(out.stat().st_size, rel=0.3, abs=1500)
