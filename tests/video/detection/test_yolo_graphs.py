"""Detectors built as YOLO v8 and v11 are, with drawn weights: what their files say, as boxes.

The layers are those of the published networks, a quarter and less as wide: convolutions with
normalisation and SiLU, blocks that are split and joined, pooling of three sizes, attention, a
pyramid up and down, and a head whose edges are means over 16 bins. The file is exported as such
networks are, without their own choice of boxes; onnxruntime says what it is to say.
"""

from __future__ import annotations

import io
import warnings
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnx")
pytest.importorskip("numba")
runtime = pytest.importorskip("onnxruntime")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from tests.support.detectors import written  # noqa: E402
from tilewright import video  # noqa: E402
from tilewright.video.detection.letterbox import letterboxed  # noqa: E402
from tilewright.video.detection.things import Found  # noqa: E402
from tilewright.video.look import Frame  # noqa: E402
from tilewright.video.stages.contract import Window  # noqa: E402

SIDE, CLASSES, BINS = 96, 5, 16


class Conv(nn.Sequential):
    def __init__(self, i: int, o: int, k: int = 1, s: int = 1, g: int = 1, act: bool = True):
        last = nn.SiLU() if act else nn.Identity()
        super().__init__(
            nn.Conv2d(i, o, k, s, k // 2, groups=g, bias=False), nn.BatchNorm2d(o), last
        )


class Bottleneck(nn.Module):
    def __init__(self, c: int, shortcut: bool) -> None:
        super().__init__()
        self.both, self.shortcut = nn.Sequential(Conv(c, c, 3), Conv(c, c, 3)), shortcut

    def forward(self, x: Tensor) -> Tensor:
        return x + self.both(x) if self.shortcut else self.both(x)


class Joined(nn.Module):
    """C3: two ways, one through bottlenecks."""

    def __init__(self, c: int) -> None:
        super().__init__()
        self.a, self.b, self.out = Conv(c, c // 2), Conv(c, c // 2), Conv(c, c)
        self.inner = nn.Sequential(Bottleneck(c // 2, True), Bottleneck(c // 2, True))

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.cat([self.inner(self.a(x)), self.b(x)], 1))


class Split(nn.Module):
    """C2f of v8, C3k2 of v11: every step's channels are kept."""

    def __init__(self, i: int, o: int, eleven: bool, shortcut: bool = False) -> None:
        super().__init__()
        half = o // 2
        self.first, self.last = Conv(i, o), Conv(3 * half, o)
        self.inner = Joined(half) if eleven else Bottleneck(half, shortcut)

    def forward(self, x: Tensor) -> Tensor:
        parts = list(self.first(x).chunk(2, 1))
        return self.last(torch.cat([*parts, self.inner(parts[-1])], 1))


class Pooled(nn.Module):
    """SPPF."""

    def __init__(self, c: int) -> None:
        super().__init__()
        self.first, self.last = Conv(c, c // 2), Conv(2 * c, c)

    def forward(self, x: Tensor) -> Tensor:
        found = [self.first(x)]
        for _ in range(3):
            found.append(functional.max_pool2d(found[-1], 5, 1, 2))
        return self.last(torch.cat(found, 1))


class Attending(nn.Module):
    """C2PSA of v11: attention over places, keys half as wide, a depthwise way beside it."""

    def __init__(self, c: int, heads: int = 2) -> None:
        super().__init__()
        self.heads, self.wide = heads, c // 2 // heads
        half = c // 2
        self.first, self.last = Conv(c, c), Conv(c, c)
        self.qkv = Conv(half, 2 * half, act=False)
        self.beside = Conv(half, half, 3, 1, half, act=False)
        self.after = Conv(half, half, act=False)
        self.fed = nn.Sequential(Conv(half, c), Conv(c, half, act=False))

    def attended(self, x: Tensor) -> Tensor:
        n, c, h, w = x.shape
        key = self.wide // 2
        whole = self.qkv(x).view(n, self.heads, 2 * key + self.wide, h * w)
        q, k, v = whole.split([key, key, self.wide], 2)
        share = ((q.transpose(-2, -1) @ k) * key**-0.5).softmax(-1)
        seen = (v @ share.transpose(-2, -1)).view(n, c, h, w)
        return self.after(seen + self.beside(v.reshape(n, c, h, w)))

    def forward(self, x: Tensor) -> Tensor:
        a, b = self.first(x).chunk(2, 1)
        b = b + self.attended(b)
        return self.last(torch.cat([a, b + self.fed(b)], 1))


class Yolo(nn.Module):
    def __init__(self, eleven: bool) -> None:
        super().__init__()
        c = (8, 16, 32, 48, 64)
        self.stem = nn.Sequential(
            Conv(3, c[0], 3, 2), Conv(c[0], c[1], 3, 2), Split(c[1], c[1], eleven, True)
        )
        self.down = nn.ModuleList(
            nn.Sequential(Conv(i, o, 3, 2), Split(o, o, eleven, True)) for i, o in pairwise(c[1:])
        )
        self.end = nn.Sequential(Pooled(c[4]), *[Attending(c[4])][: int(eleven)])
        self.up = nn.ModuleList(
            [Split(c[4] + c[3], c[3], eleven), Split(c[3] + c[2], c[2], eleven)]
        )
        self.back = nn.ModuleList([Conv(c[2], c[2], 3, 2), Conv(c[3], c[3], 3, 2)])
        self.join = nn.ModuleList(
            [Split(c[2] + c[3], c[3], eleven), Split(c[3] + c[4], c[4], eleven)]
        )
        self.edges = nn.ModuleList(
            nn.Sequential(Conv(i, 16, 3), nn.Conv2d(16, 4 * BINS, 1)) for i in c[2:]
        )
        self.kinds = nn.ModuleList(
            nn.Sequential(
                *([Conv(i, i, 3, 1, i), Conv(i, 16)] if eleven else [Conv(i, 16, 3)]),
                nn.Conv2d(16, CLASSES, 1),
            )
            for i in c[2:]
        )
        cells = [SIDE // stride for stride in (8, 16, 32)]
        middles = [
            torch.stack(torch.meshgrid(*[torch.arange(n) + 0.5] * 2, indexing="xy"), 0).flatten(1)
            for n in cells
        ]
        strides = [torch.full((n * n,), SIDE / n) for n in cells]
        self.register_buffer("middles", torch.cat(middles, 1))
        self.register_buffer("strides", torch.cat(strides))
        self.register_buffer("bins", torch.arange(float(BINS)).view(1, BINS, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        small = [self.stem(x)]
        for layer in self.down:
            small.append(layer(small[-1]))
        three, four, five = small[1], small[2], self.end(small[3])
        four = self.up[0](torch.cat([functional.interpolate(five, scale_factor=2.0), four], 1))
        three = self.up[1](torch.cat([functional.interpolate(four, scale_factor=2.0), three], 1))
        four = self.join[0](torch.cat([self.back[0](three), four], 1))
        five = self.join[1](torch.cat([self.back[1](four), five], 1))
        looked = three, four, five
        edges = torch.cat([e(y).flatten(2) for e, y in zip(self.edges, looked, strict=True)], 2)
        kinds = torch.cat([k(y).flatten(2) for k, y in zip(self.kinds, looked, strict=True)], 2)
        shares = edges.view(1, 4, BINS, -1).transpose(1, 2).softmax(1)
        far = functional.conv2d(shares, self.bins.view(1, BINS, 1, 1)).view(1, 4, -1)
        low, high = self.middles - far[:, :2], self.middles + far[:, 2:]
        places = torch.cat([(low + high) / 2, high - low], 1) * self.strides
        return torch.cat([places, kinds.sigmoid()], 1)


def spread(layer: nn.Conv2d, given: tuple[Tensor], said: Tensor) -> None:
    """Weights and bias such that logits are -1 on average, 1 from it."""
    scale = 1 / said.std()
    layer.weight.data *= scale
    layer.bias.data = (layer.bias.data - said.mean((0, 2, 3))) * scale - 1


def exported(eleven: bool) -> bytes:
    torch.manual_seed(3)
    net = Yolo(eleven).eval()
    for layer in net.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.running_mean.normal_(0, 0.1)
            layer.running_var.uniform_(0.05, 0.2)
    for head in net.kinds:  # scores that are neither all alike nor all 1
        head[-1].register_forward_hook(spread)
    with torch.no_grad():
        net(torch.rand(1, 3, SIDE, SIDE))
    for head in net.kinds:
        head[-1]._forward_hooks.clear()
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(net, (torch.zeros(1, 3, SIDE, SIDE),), file, dynamo=False,
                          opset_version=17, input_names=["images"])  # fmt: skip
    return file.getvalue()


@pytest.mark.parametrize("eleven", [False, True], ids=["v8", "v11"])
def test_a_published_structure_finds_what_its_file_says(tmp_path: Path, eleven: bool) -> None:
    content = exported(eleven)
    look = video.Look(120, 80, "yuv420p", 8, "yuv", (1, 1))
    rng = np.random.default_rng(5)
    planes = tuple(rng.integers(16, 235, shape).astype(np.uint8) for shape in look.shapes)
    frame = Frame(planes, 0, 1, Fraction(1, 25), look)
    stage = video.Detect.of_file(written(tmp_path / "d.onnx", content), score=0.3, device="host")
    (seen,) = stage.bound(look)(Window(frame))
    assert isinstance(seen.found, Found)
    pixels, _ = letterboxed(frame, SIDE, SIDE)
    session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    given = pixels.transpose(2, 0, 1)[None].astype(np.float32) / 255
    (said,) = session.run(None, {"images": given})
    scores = said[0, 4:]
    best = int(scores.max(0).argmax())
    x, y, wide, high = said[0, :4, best]
    first = max(seen.found.things, key=lambda one: one.score)
    assert first.score == pytest.approx(float(scores[:, best].max()), abs=2e-3)
    assert first.kind == f"class {int(scores[:, best].argmax())}"
    scale = SIDE / look.width  # the longer side fits
    top = (SIDE - scale * look.height) / 2
    low, high_end = (y - high / 2 - top) / scale, (y + high / 2 - top) / scale
    left, right = (x - wide / 2) / scale, (x + wide / 2) / scale
    place = [max(0.0, left), max(0.0, low), min(120.0, right), min(80.0, high_end)]
    got = [first.x, first.y, first.x + first.w, first.y + first.h]
    assert got == pytest.approx(place, abs=0.6)
    assert len(seen.found.things) > 1
