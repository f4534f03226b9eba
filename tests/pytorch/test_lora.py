"""GroupedLoRA: equal to a loop over rows, its gradients too, whatever the order of the rows."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest

from tilewright.errors import ArgumentError, OperandError, ShapeError

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
RANKS = [4, 1, 16, 4, 7]


def layer(ranks: list[int] = RANKS, **options: Any) -> Any:
    from tilewright.pytorch import GroupedLoRA

    torch.manual_seed(0)
    base = torch.nn.Linear(13, 11, dtype=torch.float64)
    made = GroupedLoRA(base, ranks, **options)
    for b in made.b:
        torch.nn.init.normal_(b)
    return made


def looped(made: Any, x: Any, adapter: Any) -> Any:
    rows = []
    for row, i in zip(x.reshape(-1, 13), adapter.reshape(-1).tolist(), strict=True):
        one = made.base(row)
        if 0 <= i < len(made.ranks):
            one = one + made.scales[i] * (row @ made.adapter(i)[0] @ made.adapter(i)[1])
        rows.append(one)
    return torch.stack(rows).reshape(*x.shape[:-1], 11)


ROWS = {
    "unsorted": [3, 0, -1, 2, 2, 4, 0, 1, 99, 3],
    "sorted": [0, 0, 1, 2, 3, 3, 4],
    "one adapter": [2, 2, 2],
    "none": [-1, -1],
    "two dimensions": [[1, 0, 4], [-1, 2, 2]],
}


@pytest.mark.parametrize("name", ROWS)
def test_results_and_gradients_are_those_of_a_loop(name: str) -> None:
    made, adapter = layer(alpha=[8.0, 1.0, 2.0, 4.0, 7.0]), torch.tensor(ROWS[name])
    x = torch.randn(*adapter.shape, 13, dtype=torch.float64, requires_grad=True)
    weights = [x, *made.a, *made.b]
    found, wanted = made(x, adapter), looped(made, x, adapter)
    torch.testing.assert_close(found, wanted)
    pull = torch.randn_like(wanted)
    ours = torch.autograd.grad((found * pull).sum(), weights, materialize_grads=True)
    loops = torch.autograd.grad((wanted * pull).sum(), weights, materialize_grads=True)
    torch.testing.assert_close(ours, loops)
    assert all(not one.requires_grad for one in made.base.parameters())


WHOLE = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64")


@pytest.mark.parametrize("dtype", WHOLE)
def test_indices_of_any_whole_dtype_mean_the_same(dtype: str) -> None:
    """There are more adapters than the short ones can count."""
    made = layer([1, 2] * 150)
    adapter = torch.tensor([0, 1, 40, 41, 99, 100, 127], dtype=getattr(torch, dtype))
    x = torch.randn(len(adapter), 13, dtype=torch.float64)
    torch.testing.assert_close(made(x, adapter), looped(made, x, adapter.long()))


def test_no_rows_and_no_adapters_leave_base_alone() -> None:
    x = torch.randn(3, 13, dtype=torch.float64)
    bare = layer([])
    assert torch.equal(bare(x, torch.tensor([0, 1, -1])), bare.base(x))
    assert layer()(x[:0], torch.zeros(0, dtype=torch.int64)).shape == (0, 11)


def test_a_fresh_layer_is_its_base() -> None:
    made = layer()
    made.reset_parameters()
    x = torch.randn(4, 13, dtype=torch.float64)
    torch.testing.assert_close(made(x, torch.tensor([0, 1, 2, 3])), made.base(x))


def test_it_compiles_to_one_graph_for_any_adapters() -> None:
    made = layer()
    whole = torch.compile(made, backend="aot_eager", fullgraph=True)
    x = torch.randn(6, 13, dtype=torch.float64)
    for rows in ([0, 1, 2, 3, 4, -1], [2, 2, 0, 2, 2, 1]):
        adapter = torch.tensor(rows)
        torch.testing.assert_close(whole(x, adapter), looped(made, x, adapter))


def test_its_state_has_two_tensors_a_rank_and_comes_back() -> None:
    made, memory = layer(), io.BytesIO()
    torch.save(made.state_dict(), memory)
    memory.seek(0)
    other = layer()
    torch.nn.init.zeros_(other.b[3])
    other.load_state_dict(torch.load(memory))
    assert [tuple(one.shape) for one in other.a] == [
        (1, 13, 1),
        (2, 13, 4),
        (1, 13, 7),
        (1, 13, 16),
    ]
    assert torch.equal(other.adapter(2)[1], made.adapter(2)[1])
    assert {*made.state_dict()} == {
        *(f"{name}.{at}" for name in "ab" for at in range(4)), "base.weight", "base.bias",
        "adapter_ranks",
    }  # fmt: skip


@pytest.mark.parametrize("ranks", [[4, 16, 1, 4, 7], [1, 4, 4, 7, 16], [4, 1, 16, 4, 8], RANKS[:4]])
def test_a_state_whose_adapters_stand_otherwise_is_refused_before_it_is_loaded(
    ranks: list[int],
) -> None:
    """Adapters of rank 4 would be others', though all shapes fit."""
    made = torch.nn.Sequential(layer())
    before = {name: value.clone() for name, value in made.state_dict().items()}
    other = torch.nn.Sequential(layer(ranks))
    torch.nn.init.zeros_(other[0].b[0])
    with pytest.raises(ArgumentError, match=r"state\['0.adapter_ranks'\]=\[.*accepted are \[4, 1"):
        made.load_state_dict(other.state_dict())
    assert all(torch.equal(value, before[name]) for name, value in made.state_dict().items())
    copied = copy.deepcopy(made)
    copied.load_state_dict(made.half().state_dict())
    del before["0.adapter_ranks"]
    with pytest.raises(RuntimeError, match="adapter_ranks"):
        copied.load_state_dict(before)


def test_an_adapter_is_seen_and_set_by_its_index() -> None:
    made, x = layer(), torch.randn(1, 13, dtype=torch.float64)
    for i, rank in enumerate(RANKS):
        a, b = made.adapter(i)
        assert (a.shape, b.shape) == ((13, rank), (rank, 11))
        with torch.no_grad():
            b.copy_(torch.full_like(b, 0.5))
        wanted = made.base(x) + made.scales[i] * (x @ a).sum() * 0.5
        torch.testing.assert_close(made(x, torch.tensor([i])), wanted)
    with pytest.raises(ArgumentError, match="index=5: accepted are 0 to 4"):
        made.adapter(5)


def test_what_is_dropped_is_dropped_before_the_adapters_alone() -> None:
    made = layer(dropout=1.0)
    x, adapter = torch.randn(3, 13, dtype=torch.float64), torch.tensor([0, 1, 2])
    torch.testing.assert_close(made(x, adapter), made.base(x))
    torch.testing.assert_close(made.eval()(x, adapter), looped(made, x, adapter))


def test_autocast_computes_both_parts_in_its_dtype() -> None:
    made = layer().float()
    x, adapter = torch.randn(3, 13), torch.tensor([0, 2, 4])
    with torch.autocast("cpu", torch.bfloat16):
        found = made(x, adapter)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), looped(made, x, adapter), rtol=0.05, atol=0.2)


def test_what_does_not_fit_is_refused_by_name() -> None:
    from tilewright.pytorch import GroupedLoRA

    base, made = torch.nn.Linear(13, 11), layer()
    x = torch.randn(3, 13, dtype=torch.float64)
    for error, words, call in (
        (ArgumentError, r"ranks=\[0\]", lambda: GroupedLoRA(base, [0])),
        (ArgumentError, "alpha: has 1", lambda: GroupedLoRA(base, [1, 2], alpha=[3.0])),
        (ArgumentError, "alpha='2'", lambda: GroupedLoRA(base, [1], alpha="2")),
        (ArgumentError, "alpha=.*None", lambda: GroupedLoRA(base, [1], alpha=[None])),
        (OperandError, "base=ReLU", lambda: GroupedLoRA(torch.nn.ReLU(), [1])),
        (OperandError, r"adapter=\[0, 1, 2\]", lambda: made(x, [0, 1, 2])),
        (OperandError, "adapter.dtype", lambda: made(x, torch.ones(3))),
        (OperandError, "x=list", lambda: made([1.0], torch.tensor([0]))),
        (ShapeError, r"x.shape=\(3, 5\)", lambda: made(x[:, :5], torch.tensor([0, 1, 2]))),
        (ShapeError, r"adapter.shape=\(2,\)", lambda: made(x, torch.tensor([0, 1]))),
    ):
        with pytest.raises(error, match=words):
            call()


@pytest.mark.parametrize("way", ["loaded", "assigned", "drawn"])
def test_a_layer_made_on_the_meta_device_has_its_order_and_scales_again(way: str) -> None:
    wanted, x = layer(alpha=8.0), torch.randn(7, 13, dtype=torch.float64)
    adapter = torch.tensor([3, 0, -1, 2, 1, 4, 0])
    made = layer(alpha=8.0).to("meta")
    if way != "assigned":
        made = made.to_empty(device="cpu")
        for buffer in made.buffers():
            buffer.fill_(99)
    if way == "drawn":
        made.base.load_state_dict(wanted.base.state_dict())
        made.reset_parameters()
        assert torch.equal(made(x, adapter), made.base(x))
        assert made.adapter_ranks.tolist() == RANKS
    else:
        made.load_state_dict(wanted.state_dict(), assign=way == "assigned")
        torch.testing.assert_close(made(x, adapter), wanted(x, adapter))
    assert all(buffer.device.type == "cpu" for buffer in made.buffers())


def test_a_state_without_memory_is_loaded_as_torch_does() -> None:
    state = {name: value.to("meta") for name, value in layer().state_dict().items()}
    made = layer()
    made.load_state_dict(state, assign=True)
    assert made.a[0].is_meta
