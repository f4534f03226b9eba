"""Recipes: what learns is what is exported, runs go on as if never ended, and figures are right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")
image = pytest.importorskip("PIL.Image")

from tilewright import nn as networks  # noqa: E402
from tilewright.pytorch import qat  # noqa: E402
from train import cards, checkpoints, superres  # noqa: E402
from train.eight_bits import rounding, whole  # noqa: E402
from train.export import in_halves, onnx_of  # noqa: E402
from train.judged import bicubic, judged, psnr_of, ssim_of  # noqa: E402
from train.nets import SIZES, Branched, anchored, balanced, cheapest, plain, plain_of  # noqa: E402
from train.photographs import Crops, Pair, eightfold, halved, pairs_of, taught  # noqa: E402
from train.steps import Plan, Steps  # noqa: E402

PAGE = """## example.org/pictures

| file | shows | path | licence, credit | source size |
|---|---|---|---|---|
| `train/one.png` | noise | `a/one.png` | CC0; Ann | 64x64 |
| `train/one-b.png` | noise, closer | `a/one.png` | CC0; Ann | 64x64 |
| `test/two.png` | noise | `a/two.png` | CC0; Bob | 64x64 |
"""


def drawn(height: int = 64, width: int = 80, seed: int = 0) -> Pair:
    """A smooth picture of noise, and its half."""
    rng = np.random.default_rng(seed)
    rough = torch.from_numpy(rng.uniform(30, 220, (1, 1, height // 8, width // 8)))
    high = torch.nn.functional.interpolate(rough, (height, width), mode="bilinear")[0, 0].numpy()
    return Pair(f"drawn-{seed}", high, halved(high))


PAIRS = [drawn(seed=0), drawn(72, 64, seed=1)]
CPU = superres.Limits(steps=3, minutes=1.0, device="cpu", half=False, graph=True)


def task(**changes: Any) -> superres.Task:
    return superres.Task(
        **{"size": "s", "int8": False, "seed": 5, "batch": 2, "crop": 16, "rate": 1e-3, **changes}
    )


def steps(seed: int = 0) -> Steps:
    torch.manual_seed(seed)
    model = Branched(SIZES["s"])
    plan = Plan(rate=1e-3, batch=2, seed=7, half=False)
    crops = Crops(PAIRS, 16, "cpu")
    return Steps(list(model.parameters()), model.run, model.collapsed, crops, plan)


def test_a_run_that_goes_on_ends_with_the_same_bits(tmp_path: Path) -> None:
    whole, begun, gone_on = steps(), steps(), steps(seed=9)
    whole.run(3, lambda number: 1.0)
    begun.run(1, lambda number: 1.0)
    checkpoints.write(tmp_path / "run.pt", {"size": "s"}, begun, 1.5, {})
    gone_on.load(checkpoints.read(tmp_path / "run.pt")["steps"])
    gone_on.run(2, lambda number: 1.0)
    for one, other in zip(whole.state()["parameters"], gone_on.state()["parameters"], strict=True):
        assert torch.equal(one, other)
    for one, other in zip(whole.averages, gone_on.averages, strict=True):
        assert torch.equal(one, other)


def test_the_same_line_does_nothing_when_it_is_done_and_another_is_refused(tmp_path: Path) -> None:
    path = superres.learn(task(), CPU, PAIRS, PAIRS[:1], tmp_path)
    first = checkpoints.net(path)
    superres.learn(task(), CPU, PAIRS, [], tmp_path)
    assert all(map(torch.equal, first, checkpoints.net(path)))
    with pytest.raises(ValueError, match=r"another run: seed=5; name another --out"):
        superres.learn(task(seed=6), CPU, PAIRS, [], tmp_path)


def test_learning_lowers_the_loss() -> None:
    run = steps()
    losses = [run.run(20, lambda number: 10.0) for _ in range(4)]
    assert losses[-1] < 0.7 * losses[0]


def test_a_loss_that_is_no_number_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(FloatingPointError, match="superres-s: the loss is nan after 3 steps"):
        superres.learn(task(rate=float("nan")), CPU, PAIRS, [], tmp_path)


def test_half_precision_takes_the_same_steps_nearly() -> None:
    losses = []
    for half in (False, True):
        torch.manual_seed(0)
        model = Branched(SIZES["s"])
        plan = Plan(rate=1e-3, batch=2, seed=7, half=half)
        crops = Crops(PAIRS, 16, "cpu")
        run = Steps(list(model.parameters()), model.run, model.collapsed, crops, plan)
        losses.append(run.run(4, lambda number: 1.0))
    assert losses[1] == pytest.approx(losses[0], rel=0.01)


def test_crops_are_the_same_place_of_the_half_and_of_the_picture() -> None:
    """Of a picture that is its place: an original crop, halved by its means, is the half's crop."""
    low = (np.arange(40)[:, None] * 3 + np.arange(48)).astype(np.uint8)
    pairs = [Pair("places", np.kron(low, np.ones((2, 2))), low), drawn()]
    crops = Crops(pairs, 16, "cpu")
    rows = crops.drawn(np.random.default_rng(0), 1, 64)[0]
    assert len(np.unique(rows[:, 4:], axis=0)) == 8  # all turns
    x, wanted = crops.at(torch.from_numpy(rows))
    means = torch.nn.functional.avg_pool2d(wanted, 2)
    places = rows[:, 0] == 0
    torch.testing.assert_close(means[places], x[places])
    assert 0 < places.sum() < 64


def test_a_net_begins_as_another_and_collapses_to_it() -> None:
    torch.manual_seed(0)
    other, model = (
        plain_of(SIZES["s"], anchored(list(plain(SIZES["s"]).parameters()))),
        Branched(SIZES["s"]),
    )
    model.begin_as(list(other.parameters()))
    for one, right in zip(model.collapsed(), other.parameters(), strict=True):
        torch.testing.assert_close(one, right, atol=1e-6, rtol=1e-5)
    x = torch.rand(2, 1, 9, 11)
    torch.testing.assert_close(model.run(x, model.collapsed()), other(x), atol=1e-5, rtol=1e-4)


def drawn_net(size: str = "s", seed: int = 1) -> torch.nn.Sequential:
    """An anchored net of drawn weights, balanced on noise."""
    torch.manual_seed(seed)
    net = plain_of(SIZES[size], [one.detach() for one in Branched(SIZES[size]).collapsed()])
    balanced(net, torch.rand(4, 1, 24, 24))
    return net


def small_net(net: torch.nn.Module) -> networks.Network:
    """What is shipped of a net that `rounding` made."""
    plain_one = networks.import_onnx(onnx_of(qat.restored(net)))
    return networks.quantise(plain_one, ranges=qat.ranges(net))


def test_in_int8_the_first_channel_carries_every_code_unchanged() -> None:
    """The other channels are left out at the end, so that only what was carried comes out."""
    tensors = [one.detach() for one in drawn_net().parameters()]
    tensors[-2][:, 1:], tensors[-1][:] = 0, 0
    tensors[-2][:, 0] = torch.tensor([[0, 0, 0], [0, 1, 0], [0, 0, 0]])
    codes = np.random.default_rng(0).permutation(np.arange(256).repeat(4)).reshape(1, 1, 32, 32)
    x = (codes / 255).astype(np.float32)
    small = small_net(rounding(SIZES["s"], tensors))
    got = small.bind(x.shape, device="host")(x)
    np.testing.assert_array_equal(np.rint(got * 255), codes.repeat(2, axis=2).repeat(2, axis=3))
    np.testing.assert_allclose(got * 255, np.rint(got * 255), atol=1e-4)


def test_of_a_brighter_picture_a_net_gives_the_same_brighter_and_in_int8_too() -> None:
    """Away from the border, whose zeros are as dark as ever."""
    net = drawn_net()
    codes = np.random.default_rng(1).integers(16, 200, (1, 1, 32, 32))
    dark, bright = ((codes + more).astype(np.float32) / 255 for more in (0, 30))
    small = small_net(rounding(SIZES["s"], list(net.parameters()))).bind(dark.shape, device="host")
    for enlarge in (lambda x: net(torch.from_numpy(x)).detach().numpy(), small):
        difference = (enlarge(bright) - enlarge(dark))[..., 10:-10, 10:-10]
        np.testing.assert_allclose(difference * 255, 30, atol=2e-3)


def test_whole_weights_keep_the_sums_of_those_that_read_the_picture() -> None:
    tensors = [one.detach() for one in drawn_net("m").parameters()]
    for number, (kernel, found) in enumerate(zip(tensors[::2], whole(tensors)[::2], strict=True)):
        steps = found.flatten(1).abs().amax(1)[:, None, None, None] / 127
        shares = found / steps
        torch.testing.assert_close(shares, shares.round(), atol=1e-4, rtol=0)
        if 0 < number < 5:
            assert ((found - kernel).abs() / steps)[:, 1:].max() < 0.501
        sums = shares[:, 0].sum((1, 2))
        wanted = sums if number == 5 else torch.tensor([127.0] + [0.0] * 31)
        torch.testing.assert_close(sums, wanted, atol=1e-3, rtol=0)
        torch.testing.assert_close(
            found[:, 0].sum((1, 2)), kernel[:, 0].sum((1, 2)), atol=1e-5, rtol=0
        )


def test_what_a_net_learns_from_a_teacher_is_a_share_of_its_pictures() -> None:
    nearest = torch.nn.Upsample(scale_factor=2)
    (soft,) = taught(PAIRS[:1], nearest, 0.25, "cpu")
    np.testing.assert_allclose(
        soft.high, 0.75 * PAIRS[0].high + 0.25 * np.kron(PAIRS[0].low, np.ones((2, 2))), atol=1e-4
    )
    net, x = drawn_net(), torch.rand(1, 1, 12, 18)
    with torch.no_grad():
        mean = eightfold(net)(x)
        assert not torch.allclose(mean, net(x))
        torch.testing.assert_close(eightfold(net)(x.mT.flip(-1)), mean.mT.flip(-1))


@pytest.mark.parametrize(("size", "most"), [("s", 14_000), ("m", 42_000), ("l", 155_000)])
def test_sizes_have_the_parameters_that_they_say(size: str, most: int) -> None:
    found = sum(parameter.numel() for parameter in plain(SIZES[size]).parameters())
    assert found == SIZES[size].parameters <= most


def test_balanced_channels_have_one_end_and_the_net_computes_the_same() -> None:
    torch.manual_seed(1)
    net = plain_of(SIZES["s"], [one.detach() for one in Branched(SIZES["s"]).collapsed()])
    x = torch.rand(4, 1, 12, 12)
    with torch.no_grad():
        before = net(x)
        balanced(net, x)
        torch.testing.assert_close(net(x), before, atol=1e-5, rtol=1e-4)
        values = net[:2](x)
    assert torch.equal(values[:, :1], x)
    ends = [float(cheapest(one)) for one in values[:, 1:].unbind(1) if one.max() > 0.2]
    assert len(ends) > 8
    np.testing.assert_allclose(ends, 1, rtol=0.02)


def test_an_exported_net_is_the_net_of_torch_at_any_size() -> None:
    torch.manual_seed(2)
    net = plain(SIZES["s"])
    model = onnx_of(net)
    ours, theirs = networks.import_onnx(model), onnxruntime.InferenceSession(model)
    assert ours.inputs[0].shape == ("n", 1, "height", "width")
    for shape in ((1, 1, 7, 10), (2, 1, 16, 9)):
        x = torch.rand(shape)
        with torch.no_grad():
            wanted = net(x).numpy()
        np.testing.assert_allclose(theirs.run(None, {"luma": x.numpy()})[0], wanted, atol=1e-5)
        np.testing.assert_allclose(ours.bind(shape, device="host")(x.numpy()), wanted, atol=1e-5)


def test_a_recipe_from_photographs_to_files(tmp_path: Path) -> None:
    """Both runs, then the export: the int8 network in the file gives the bits that were learned."""
    data, out, folder = tmp_path / "data", tmp_path / "out", tmp_path / "models"
    for place, seed in (("train/one", 0), ("train/one-b", 1), ("test/two", 2)):
        path = data / f"{place}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        codes = np.rint(drawn(256, 256, seed).high).astype(np.uint8)
        image.fromarray(np.stack([codes, codes, 255 - codes], axis=-1)).save(path)
    (data / "README.md").write_text(PAGE)
    pairs = pairs_of(data / "train")
    superres.learn(task(), CPU, pairs, [], out)
    path = superres.learn_int8(task(int8=True), CPU, pairs, [], out)
    superres.export("s", out, data, folder)
    names = ["superres-s-int8.npz", "superres-s.md", "superres-s.npz", "superres-s.onnx"]
    assert sorted(file.name for file in folder.iterdir()) == ["photographs.md", *names]
    x = torch.rand(1, 1, 20, 28)
    module = rounding(SIZES["s"], checkpoints.net(path))
    small = networks.load(folder / "superres-s-int8.npz")
    np.testing.assert_array_equal(small.bind(x.shape, device="host")(x.numpy()), module(x).detach())
    card = (folder / "superres-s.md").read_text(encoding="utf-8")
    assert "1 photographs and 1 closer crops" in card
    assert "{" not in card
    listed = (folder / "photographs.md").read_text(encoding="utf-8")
    assert "| one | `a/one.png` | CC0; Ann |" in listed
    assert "one-b" not in listed
    assert "Bob" not in listed


def test_psnr_and_ssim_of_known_pictures() -> None:
    high = torch.from_numpy(PAIRS[0].high)
    assert psnr_of(high + 5, high) == pytest.approx(20 * np.log10(255 / 5))
    assert ssim_of(high, high) == pytest.approx(1)
    # Of flat pictures only the means differ: (2ab + c) / (a² + b² + c), c = (0.01 * 255)².
    flat = torch.full((40, 40), 100.0)
    c = (0.01 * 255) ** 2
    assert ssim_of(flat, flat + 20) == pytest.approx((2 * 100 * 120 + c) / (100**2 + 120**2 + c))


def test_a_border_of_two_is_not_judged() -> None:
    high = torch.from_numpy(PAIRS[0].high)
    other = high + 1
    other[:2], other[:, -2:] = 0, 0
    assert psnr_of(other, high) == pytest.approx(20 * np.log10(255))


def test_bicubic_of_a_smooth_picture_is_near_it() -> None:
    assert judged(bicubic, PAIRS).psnr > 35


def test_halves_cost_little() -> None:
    torch.manual_seed(3)
    net, x = plain(SIZES["m"]), torch.rand(1, 1, 12, 12)
    with torch.no_grad():
        wanted = net(x)
        assert (in_halves(net, x) - wanted).abs().max() < 2e-3
        assert not torch.equal(in_halves(net, x), wanted)


def test_a_folder_without_pictures_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no picture"):
        pairs_of(tmp_path)
    with pytest.raises(ValueError, match="drawn-0: its half is smaller than a crop of 64"):
        Crops(PAIRS, 64, "cpu")


def test_the_list_of_photographs_names_those_of_training_once() -> None:
    assert cards.photographs(PAGE).count("example.org") == 1
