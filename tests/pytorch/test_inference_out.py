"""Inference tensors given as `out`: whoever multiplies, they are written."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import tilewright as tw  # noqa: E402
from tilewright.torch_ops import ragged_tensors  # noqa: E402

OF_INTEGERS = (torch.ones(6, 4, dtype=torch.int8), torch.ones(4, 5, dtype=torch.int8))
SCALES = {"scale_a": torch.ones(6, 1), "scale_b": torch.ones(1, 5)}
# What writes into `out`: a call of a, b, b as two groups, offsets; and the dtype of `out`.
WRITERS: dict[str, tuple[Any, Any]] = {
    "one": (lambda a, b, w, o, out: tw.matmul(a, b, out=out), torch.float32),
    "added": (lambda a, b, w, o, out: tw.matmul(a, b, out=out, beta=2.0), torch.bfloat16),
    "complex": (lambda a, b, w, o, out: tw.matmul(a, b, out=out), torch.complex64),
    "list": (lambda a, b, w, o, out: tw.grouped_matmul([a], [b], out=[out]), torch.float32),
    "bound": (lambda a, b, w, o, out: plan_of(a, b).bind([a], [b], [out])(), torch.float32),
    "rows": (lambda a, b, w, o, out: tw.ragged_matmul(a, w, o, out=out), torch.float32),
    "halves": (lambda a, b, w, o, out: tw.ragged_matmul(a, w, o, out=out), torch.bfloat16),
    "alone": (
        lambda a, b, w, o, out: tw.ragged_matmul(a, w, o, out=out, batch_invariant=True),
        torch.float32,
    ),
    "integers": (lambda a, b, w, o, out: tw.matmul(*OF_INTEGERS, out=out), torch.int32),
    "scaled": (lambda a, b, w, o, out: tw.matmul(*OF_INTEGERS, out=out, **SCALES), torch.bfloat16),
}


def plan_of(a: Any, b: Any) -> Any:
    return tw.plan_grouped([a.shape[0]], [b.shape[1]], [a.shape[1]])


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", WRITERS)
def test_an_inference_tensor_is_written_as_any_other(
    name: str, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch's own functions refuse one outside of inference mode, kernels need not ask."""
    if not compiled:
        monkeypatch.setattr(ragged_tensors, "product_into", lambda *_: False)
    write, dtype = WRITERS[name]
    kind = dtype if dtype.is_floating_point or dtype.is_complex else torch.float32
    draw = torch.Generator().manual_seed(1)
    a, b = (torch.randn(sizes, generator=draw).to(kind) for sizes in ((6, 4), (4, 5)))
    given = a, b, torch.stack([b, b]), torch.tensor([2, 6], dtype=torch.int32)
    with torch.inference_mode():
        out = torch.full((6, 5), 3, dtype=dtype)
    plain = torch.full((6, 5), 3, dtype=dtype)
    write(*given, out)
    write(*given, plain)
    torch.testing.assert_close(out, plain, rtol=0, atol=0)
    assert bool((plain != 3).any())
