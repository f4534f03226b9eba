"""Models by experts_implementation="tilewright" beside the eager experts of Transformers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from tests.support import later  # noqa: E402
from tilewright.errors import OperandError  # noqa: E402
from tilewright.products.moe import moe  # noqa: E402

transformers = later.library("transformers", reason="Transformers is not installed")
door = later.Later("tilewright.doors.transformers")

SMALL = {
    "vocab_size": 41,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "num_experts_per_tok": 3,
}
# The library's names of experts differ. GPT-OSS has biases and gates beside their other halves.
FAMILIES = {
    "Qwen3Moe": {"num_experts": 7, "moe_intermediate_size": 23},
    "Mixtral": {"num_local_experts": 5},
    "GptOss": {"num_local_experts": 6},
}
# By the library's name of a gate: what tilewright.moe is asked for, if it is.
GATES: dict[str, list[str]] = {
    "silu": ["swiglu"],
    "swish": ["swiglu"],
    "gelu": ["geglu"],
    "relu": ["reglu"],
    "relu2": ["relu2glu"],
    "gelu_python": [],
    "gelu_pytorch_tanh": [],
    "relu6": [],
}


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    pytest.importorskip("transformers.integrations.moe", reason="Transformers before 5")
    door.register()
    yield
    door.unregister()


def model(family: str, hidden: int, how: str, dtype: Any = None) -> Any:
    config = getattr(transformers, f"{family}Config")(
        **SMALL, **FAMILIES[family], hidden_size=hidden, intermediate_size=hidden + 6
    )
    torch.manual_seed(3)
    made = getattr(transformers, f"{family}ForCausalLM")(config)
    with torch.no_grad():  # biases begin as zeros, and small weights hide much
        for value in made.parameters():
            value.normal_(0, 0.3)
    made.set_experts_implementation(how)
    return made.to(dtype or torch.float64)


def tokens() -> Any:
    return torch.randint(0, 41, (2, 11), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("hidden", [32, 37])
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_and_gradients_are_those_of_eager_experts(family: str, hidden: int) -> None:
    found = []
    for how in ("eager", "tilewright"):
        one = model(family, hidden, how)
        logits = one(tokens()).logits
        logits.square().sum().backward()
        found.append((logits, {name: value.grad for name, value in one.named_parameters()}))
    (right, of_right), (mine, of_mine) = found
    torch.testing.assert_close(mine, right, rtol=1e-9, atol=1e-9)
    assert of_mine.keys() == of_right.keys()
    assert sum("expert" in name for name in of_mine) >= 4
    for name, value in of_right.items():
        scale = 1 if value is None else float(value.abs().max())
        torch.testing.assert_close(of_mine[name], value, rtol=1e-8, atol=1e-10 * scale, msg=name)


@pytest.mark.parametrize("family", FAMILIES)
def test_bfloat16_and_autocast_give_what_eager_experts_give(family: str) -> None:
    for dtype in (torch.bfloat16, torch.float32):
        found = []
        for how in ("eager", "tilewright"):
            layers = experts_of(model(family, 33, how, dtype))
            x, index, weights = routed(layers, 33, dtype)
            with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.float32):
                found.append(layers(x, index, weights))
        assert found[1].dtype == found[0].dtype
        scale = float(found[0].abs().max())
        torch.testing.assert_close(found[1], found[0], rtol=4e-2, atol=2e-2 * scale)


def experts_of(made: Any) -> Any:
    return next(one for one in made.modules() if type(one).__name__.endswith("Experts"))


def routed(layer: Any, hidden: int, dtype: Any, rows: int = 19) -> tuple[Any, Any, Any]:
    draw = torch.Generator().manual_seed(2)
    x = torch.randn(rows, hidden, generator=draw).to(dtype)
    index = torch.rand(rows, layer.num_experts, generator=draw).topk(3).indices
    return x, index, torch.rand(rows, 3, generator=draw).to(dtype)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_compiled_layer_is_one_graph_and_so_are_its_gradients(family: str) -> None:
    layer = experts_of(model(family, 37, "tilewright"))
    x, index, weights = routed(layer, 37, torch.float64)
    x.requires_grad_()
    right = layer(x, index, weights)
    of_right = torch.autograd.grad(right.square().sum(), [x, *layer.parameters()])
    torch._dynamo.reset()
    mine = torch.compile(layer, fullgraph=True, backend="aot_eager")(x, index, weights)
    of_mine = torch.autograd.grad(mine.square().sum(), [x, *layer.parameters()])
    torch.testing.assert_close(mine, right)
    torch.testing.assert_close(of_mine, of_right)


def test_a_whole_model_compiles_as_one_graph() -> None:
    one = model("Qwen3Moe", 37, "tilewright")
    right = one(tokens(), use_cache=False).logits
    torch._dynamo.reset()
    compiled = torch.compile(one, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(tokens(), use_cache=False).logits, right)


def test_experts_that_others_have_give_nothing_and_their_tokens_no_gradient() -> None:
    layer = experts_of(model("Mixtral", 37, "tilewright"))
    x, index, weights = routed(layer, 37, torch.float64)
    weights.requires_grad_()
    right = layer(x, index[:, :2], weights[:, :2])
    layer._is_expert_parallel = True
    index = torch.cat([index[:, :2], torch.full((len(x), 1), layer.num_experts)], 1)
    found = layer(x, index, weights)
    torch.testing.assert_close(found, right)
    found.sum().backward()
    assert not weights.grad[:, 2].any()


def test_no_token_at_all_gives_none() -> None:
    layer = experts_of(model("GptOss", 37, "tilewright"))
    x, index, weights = routed(layer, 37, torch.float64, rows=0)
    assert layer(x, index, weights).shape == (0, 37)


def test_weights_that_lie_otherwise_are_refused_by_name() -> None:
    layer = experts_of(model("Mixtral", 37, "tilewright"))
    x, index, weights = routed(layer, 37, torch.float64)
    layer.down_proj = torch.nn.Parameter(layer.down_proj.detach().flatten(1))
    with pytest.raises(OperandError, match="down_proj"):
        layer(x, index, weights)


def test_layers_of_plain_gates_are_one_call_and_a_gate_of_another_kind_is_none() -> None:
    asked: list[str] = []

    def noted(*given: Any, activation: str) -> Any:
        asked.append(activation)
        return moe(*given, activation=activation)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tilewright.doors.transformers.moe", noted)
        for name, taken in GATES.items():
            layer = experts_of(model("Mixtral", 37, "tilewright"))
            layer.act_fn = transformers.activations.ACT2FN[name]
            given = routed(layer, 37, torch.float64)
            found = layer(*given)
            layer.config._experts_implementation = "eager"
            torch.testing.assert_close(found, layer(*given), rtol=1e-9, atol=1e-9)
            assert asked == taken, name
            asked.clear()


def test_tangents_and_gradients_of_a_batch_are_those_of_eager_experts() -> None:
    layer = experts_of(model("Mixtral", 37, "tilewright"))
    x, index, weights = routed(layer, 37, torch.float64)
    found = []
    for how in ("eager", "tilewright"):
        layer.config._experts_implementation = how
        found.append(torch.func.jvp(lambda x: layer(x, index, weights), (x,), (x.cos(),)))
    torch.testing.assert_close(found[1], found[0], rtol=1e-9, atol=1e-9)


def test_twice_is_once_from_any_thread_and_without_it_the_library_knows_no_such_name() -> None:
    threads = [threading.Thread(target=door.register) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    one = model("Mixtral", 32, "tilewright")
    for _ in range(2):
        door.unregister()
    with pytest.raises(KeyError, match="tilewright"):
        one(tokens())
    with pytest.raises(ValueError, match="tilewright"):
        model("Mixtral", 32, "tilewright")
