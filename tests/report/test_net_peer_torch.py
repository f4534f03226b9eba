"""Torch as a peer of whole networks computes what the definitions do: on the host's tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.nets import picture, plain_net, residual_blocks, upscaler

torch: Any = pytest.importorskip("torch")
pytest.importorskip("array_api_compat")

from tilewright.report import net_peer_torch  # noqa: E402


@pytest.mark.parametrize("text", [upscaler(8, 2), upscaler(4, 1, shuffle=True), residual_blocks()])
@pytest.mark.parametrize(("dtype", "allowed"), [("float32", 1e-6), ("bfloat16", 3e-2)])
def test_a_network_by_torch_gives_what_its_definitions_give(
    text: Any, dtype: str, allowed: float
) -> None:
    net = plain_net(*text)
    images, channels = next(iter(text[1].values()))[:2]
    x = picture(images, channels, 9, 11)
    given = {net.inputs[0].name: torch.from_numpy(x)}
    peer = net_peer_torch.ready(net, {net.inputs[0].name: x.shape}, given, dtype)
    (made,) = peer.run()
    wanted = net.run(x)
    assert peer.name.startswith("torch ")
    assert made.dtype == getattr(torch, dtype)
    assert np.abs(made.float().numpy() - wanted).max() <= allowed * np.abs(wanted).max()
