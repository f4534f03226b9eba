"""Which engine multiplies bits: what is said of it, and what where one is missing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.onebit.test_onebit import HOST, Case, assert_same, expected, operands, packed
from tilewright import Device, onebit
from tilewright.backends.host import native
from tilewright.backends.host.peak import probes
from tilewright.backends.host.rates import counts_by
from tilewright.engines.bits import BitProblem
from tilewright.engines.probes import Effort
from tilewright.errors import KernelError
from tilewright.facts.ceilings import Ceilings, Rate


def test_explain_tells_the_kernel_and_why_not_the_others() -> None:
    a, b = packed(operands(Case(64, 64, 1000)))
    text = onebit.explain(a, b)
    assert "m=64 n=64 k=1000" in text
    assert all(name in text for name in onebit.kernels("host"))
    assert onebit.kernels("host") == HOST


def test_a_device_nobody_knew_is_measured_once(opencl_device: Device) -> None:
    words = np.random.default_rng(0).integers(0, 2**64, (600, 32), dtype=np.uint64)
    bits = onebit.BitMatrix.of_words(words, 2048)
    text = onebit.explain(bits, bits, device=opencl_device)
    assert "measured on this device" in text
    assert text == onebit.explain(bits, bits, device=opencl_device)


def test_an_engine_that_cannot_is_named() -> None:
    a, b = packed(operands(Case(3, 4, 5)))
    with pytest.raises(KernelError, match=r"kernel='wgmma'.*'numba', 'numpy'"):
        onebit.matmul(a, b, kernel="wgmma")


def test_without_numba_the_host_still_multiplies(monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewright.backends.host import compiled

    monkeypatch.setattr(compiled, "available", lambda: False)
    asked = operands(Case(20, 30, 200))
    a, b = packed(asked)
    assert_same(onebit.matmul(a, b), expected(asked))
    assert "Numba is not installed" in onebit.explain(a, b)


def test_predictions_follow_what_was_measured_of_this_way_of_counting() -> None:
    pytest.importorskip("numba")
    engine, problem = native.NumbaEngine(), BitProblem(2048, 2048, 65_536)
    rates = (Rate("bits", counts_by(), value=1e12), Rate("bits", "popcount", value=9e15))
    ceilings = Ceilings("host", "today", rates, ())
    device = replace(native.host(), ceilings=ceilings)
    found = engine.propose([problem], device)
    assert found.seconds == pytest.approx(problem.operations / 1e12, rel=0.1)
    assert "measured here" in found.reason
    briefly = engine.propose([problem], replace(device, ceilings=None, brief=ceilings))
    assert briefly.seconds == found.seconds
    unknown = engine.propose([problem], replace(device, ceilings=None, brief=None))
    assert "a share of the vectors' peak" in unknown.reason


def test_the_rate_of_counting_is_a_row_of_the_hosts_ceilings() -> None:
    pytest.importorskip("numba")
    rows = list(probes(native.host(), Effort(sizes=(), sides=())))
    (counting,) = [probe for probe in rows if str(probe.row).startswith("bits")]
    assert str(counting.row) == f"bits {counts_by()}"
    assert counting.run(1).wall > 0
