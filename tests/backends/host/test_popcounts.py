"""How bits are counted elsewhere: inner loops as LLVM makes them, read without such a core."""

from __future__ import annotations

import platform
import re

import pytest

from bench.arm_loops import assembly

pytest.importorskip("numba")


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="ARM's tell more")
def test_a_processors_name_alone_changes_no_features_as_numba_compiles_for_all_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from numba import config

    from tilewright.backends.host.kernels.features import features

    monkeypatch.setattr(config, "CPU_FEATURES", None)
    own = features()
    monkeypatch.setattr(config, "CPU_NAME", "haswell")
    assert features() == own
    monkeypatch.setattr(config, "CPU_FEATURES", "+avx2,+fma")
    assert features() == {"avx2", "fma"}


def test_convolutions_of_avx512_without_native_counts_keep_their_sums_in_registers() -> None:
    features = "+avx512f,+avx512bw,+avx512vl,+avx512dq,+avx2,+fma,+popcnt"
    windows = assembly("cascadelake", features, "x86_64-linux-gnu")["windows"]
    found = re.split(r"^(\.L\w+):", windows, flags=re.MULTILINE)
    loops = [text for text in found[2::2] if "vpshufb" in text and "vpternlog" in text]
    assert loops, windows
    longest = max(loops, key=lambda text: text.count("vpshufb"))
    assert not re.search(r"vmov\w+\s+%zmm\d+, -?\d*\(%rsp\)", longest), longest


def test_the_tile_of_convolutions_is_the_one_of_fewest_instructions_that_fits() -> None:
    from tilewright.backends.host.kernels.popcounts import Tile

    few, many = Tile(1, 2, 4), Tile(3, 1, 4)
    assert few.instructions(9) < many.instructions(9)
    assert many.instructions(72) < few.instructions(72)
    assert Tile(2, 2, 2).registers <= 32 < Tile(2, 2, 4).registers
