"""Every operator gives what the standard's node tests say, or is refused for a listed reason."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from tests.support import standard, standard_page  # noqa: E402
from tilewright import nn  # noqa: E402
from tilewright.arrays.array import NDArray  # noqa: E402
from tilewright.nn import operators  # noqa: E402

# Operators of which the package has no case in the opsets that are read.
WITHOUT = {"GlobalLpPool", "Not"}


@pytest.mark.parametrize("name", [*standard.declared(), standard.EXPANDED])
def test_an_operator_passes_the_node_tests_of_the_standard(name: str) -> None:
    wrong = []
    for case in standard.cases()[name]:
        try:
            said = standard.refusal(case)
        except (AssertionError, ValueError, TypeError, IndexError) as error:
            wrong.append(f"{case.name}: {error}")
            continue
        if said is not None and standard.listed(case.name) is None:
            wrong.append(f"{case.name}: refused: {said}")
        if said is None and standard.listed(case.name) is not None:
            wrong.append(f"{case.name}: passes, and is listed as refused")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", [*standard.declared(), standard.EXPANDED])
def test_an_operator_gives_the_same_on_tensors_of_torch(name: str) -> None:
    """But for whole numbers without a sign of 16 bits and more, of which torch does nothing."""
    pytest.importorskip("array_api_compat")
    torch = pytest.importorskip("torch")

    def on_torch(net: nn.Network, inputs: Sequence[NDArray]) -> list[NDArray]:
        given = [torch.from_numpy(np.array(array)) for array in inputs]
        kinds = [source.dtype for source in net.inputs]
        given = [t.bfloat16() if k == "bfloat16" else t for t, k in zip(given, kinds, strict=True)]
        made = net.run(*given)
        arrays = made if isinstance(made, tuple) else (made,)
        if not given:
            return list(arrays)
        return [(a.float() if a.dtype == torch.bfloat16 else a).numpy() for a in arrays]

    for case in standard.cases()[name]:
        if standard.listed(case.name) is None:
            try:
                assert standard.refusal(case, on_torch) is None, case.name
            except NotImplementedError as error:
                if "not implemented for 'UInt" not in str(error):
                    raise


def test_every_operator_has_a_case_but_those_that_are_named() -> None:
    assert {name for name, cases in standard.cases().items() if not cases} == WITHOUT


def test_no_two_records_of_an_operator_claim_one_version() -> None:
    for name, records in operators.found().items():
        versions = [version for record in records for version in record.versions]
        assert len(set(versions)) == len(versions), name


def test_the_page_of_operators_is_what_this_run_gives() -> None:
    text = standard_page.PAGE.read_text(encoding="utf-8")
    if f"version {onnx.__version__} of" not in text:
        pytest.skip(f"the page was written with another version than onnx {onnx.__version__}")
    assert text == standard_page.page(), "python -m tests.support.standard_page writes it anew"
