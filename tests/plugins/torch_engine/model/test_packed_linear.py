from types import MethodType

import pytest
import torch
from torch.nn import Linear, Module

from lmi_plugins.torch_engine.model.packed_linear import PackedLinear, pack_linears

SIZE = 24


class Model(Module):
    """Two modules with one input, one of its own, one that is called twice, one with a bias, and one never called."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.query, self.key = Linear(SIZE, 40, False, dtype=dtype), Linear(SIZE, 8, False, dtype=dtype)
        self.own, self.biased = Linear(48, SIZE, False, dtype=dtype), Linear(48, SIZE, dtype=dtype)
        self.twice, self.unused = Linear(SIZE, SIZE, dtype=dtype), Linear(SIZE, SIZE, dtype=dtype)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        joined = torch.cat([self.query(states), self.key(states)], -1)
        output: torch.Tensor = self.twice(self.own(joined) + self.twice(self.biased(joined).sin()))
        return output


def packed_and_plain(dtype: torch.dtype = torch.float32) -> tuple[Model, Model]:
    torch.manual_seed(0)
    packed, plain = Model(dtype), Model(dtype)
    plain.load_state_dict(packed.state_dict())
    pack_linears(packed, lambda: packed(torch.zeros(2, SIZE, dtype=dtype)))
    return packed, plain


@torch.inference_mode()
@pytest.mark.parametrize("shape", [(rows, SIZE) for rows in (*range(1, 20), 37, 600)] + [(1, 9, SIZE), (2, 3, 5, SIZE)])
def test_it_gives_what_the_modules_gave(shape: tuple[int, ...]) -> None:
    packed, plain = packed_and_plain()
    for _ in range(2):
        states = torch.randn(shape)
        assert torch.allclose(packed(states), plain(states), atol=1e-5)


@torch.inference_mode()
def test_in_bfloat16() -> None:
    packed, plain = packed_and_plain(torch.bfloat16)
    states = torch.randn(7, SIZE, dtype=torch.bfloat16)
    assert torch.allclose(packed(states), plain(states), atol=0.05)


@torch.inference_mode()
def test_modules_with_one_input_can_be_called_alone_and_in_any_order() -> None:
    packed, plain = packed_and_plain()
    first, second = torch.randn(3, SIZE), torch.randn(3, SIZE)
    for module, states in (("key", first), ("query", first), ("query", second), ("key", first), ("key", second)):
        expected = plain.get_submodule(module)(states)
        assert torch.allclose(packed.get_submodule(module)(states), expected, atol=1e-5)


def test_only_what_is_called_once_is_packed() -> None:
    packed, _ = packed_and_plain()
    kinds = {name: type(module) for name, module in packed.named_children()}
    assert kinds.pop("twice") is kinds.pop("unused") is Linear
    assert set(kinds.values()) == {PackedLinear}


def test_other_types_of_numbers_stay() -> None:
    packed, _ = packed_and_plain(torch.float64)
    assert {type(module) for module in packed.children()} == {Linear}


def test_numbers_are_kept_once() -> None:
    packed, plain = packed_and_plain()
    assert packed.query.weight.shape == plain.query.weight.shape
    assert packed.query.weight.isnan().all()
    assert packed.query.weight.untyped_storage().nbytes() < 8


def test_modules_with_the_same_weights_share_a_product() -> None:
    model, inputs = Model(), [torch.randn(2, SIZE) for _ in range(2)]
    model.unused = Linear(SIZE, 40, False)
    model.unused.weight = model.query.weight
    names = ("query", "unused")

    def run() -> list[torch.Tensor]:
        return [model.get_submodule(name)(states) for name, states in zip(names, inputs, strict=True)]

    expected = run()
    pack_linears(model, run)
    for output, before in zip(run(), expected, strict=True):
        assert torch.allclose(output, before, atol=1e-5)
    query, unused = (model.get_submodule(name).forward for name in names)
    assert isinstance(query, MethodType)
    assert query == unused
