"""Linear modules on the CPU with weights in oneDNN's fastest layout."""

from collections.abc import Callable
from collections.abc import Sequence as Items
from functools import partial

import torch
from torch.nn import Linear, Module, Parameter
from torch.nn.functional import pad

from lmi_plugins.torch_engine.adapters.lora_layers import calls_of
from lmi_plugins.torch_engine.model import onednn

ROWS = 512  # the layout of the weights is chosen for this many; it is no worse with fewer
UNPADDED_ROWS = 4  # up to this many rows, each number of rows has its own product
MAX_COMPILED_ROWS = 64  # up to this many, products are compiled at the start, so that running streams need not wait


class PackedProduct:
    """The product of linear modules with the same input; the first call computes all of them."""

    def __init__(self, linears: Items[Linear]) -> None:
        self._sizes = [linear.out_features for linear in linears]
        weight = torch.cat([linear.weight.detach() for linear in linears])
        biases = [linear.bias.detach() for linear in linears if linear.bias is not None]
        self.is_shared = len(linears) > 1
        # Modules with the same shape share the products that oneDNN compiles
        self.shape = (*weight.shape, bool(biases))
        self._zeros = weight.new_zeros(1, weight.shape[1])
        self._multiply = onednn.pack(weight, torch.cat(biases) if biases else None, ROWS)
        self._input: torch.Tensor | None = None  # the input that the outputs belong to
        self._outputs: Items[torch.Tensor] = ()

    def compile(self) -> None:
        """Let oneDNN compile the product for small numbers of rows; products of the same shape share the result."""
        for rows in {_padded_rows(rows) for rows in range(1, MAX_COMPILED_ROWS + 1)}:
            self.compute(self._zeros.expand(rows, -1).contiguous())

    def output(self, index: int, input: torch.Tensor) -> torch.Tensor:
        """Return the output, [..., out], of the module with this index."""
        if input is not self._input:
            self._input, self._outputs = input, torch.split(self.compute(input), self._sizes, -1)
        output = self._outputs[index]
        if index == len(self._sizes) - 1:
            self._input, self._outputs = None, ()
        return output

    def compute(self, input: torch.Tensor) -> torch.Tensor:
        """Return the concatenated outputs, [..., out], of all its modules."""
        rows = input.shape[:-1].numel()
        if rows <= UNPADDED_ROWS or (missing := _padded_rows(rows) - rows) == 0:
            return self._multiply(input)
        padded = pad(input.reshape(rows, -1), (0, 0, 0, missing))
        return self._multiply(padded)[:rows].view(*input.shape[:-1], -1)


def _padded_rows(rows: int) -> int:
    """Round up the number of rows, because oneDNN compiles a product for each number, which takes time."""
    step = 1 << max(rows.bit_length() - 2, 0)
    return -(-rows // step) * step


class PackedLinear(Linear):
    """A Linear whose weights are in a packed product; its `weight` has their shape, but no data."""

    def __init__(self, linear: Linear, product: PackedProduct, index: int) -> None:
        Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight = Parameter(linear.weight.new_full((1, 1), torch.nan).expand(linear.weight.shape), False)
        self.bias = linear.bias
        # In place of the method, which each of the model's products would call in every step.
        self.forward = partial(product.output, index) if product.is_shared else product.compute  # type: ignore[method-assign]


@torch.inference_mode()
def pack_linears(model: Module, run: Callable[[], object]) -> None:
    """Replace each Linear that `run`, a forward pass, calls exactly once.

    Those of experts, which are called with varying numbers of tokens, stay unchanged: each number costs time and
    memory.
    """
    products: dict[tuple[int, ...], PackedProduct] = {}
    by_weights: dict[tuple[int, ...], PackedProduct] = {}  # modules may share weights, as Zamba's do
    for names in _groups(model, run):
        linears = [linear for name in names if isinstance(linear := model.get_submodule(name), Linear)]
        weights = tuple(id(each) for linear in linears for each in (linear.weight, linear.bias))
        product = by_weights[weights] = by_weights.get(weights) or PackedProduct(linears)
        for index, (name, linear) in enumerate(zip(names, linears, strict=True)):
            model.set_submodule(name, PackedLinear(linear, product, index))
        products[product.shape] = product
    for product in products.values():
        product.compile()


def _groups(model: Module, run: Callable[[], object]) -> list[list[str]]:
    """Return the names of the modules to pack, grouped by consecutive calls with the same input."""
    calls = calls_of({name: module for name, module in model.named_modules() if _can_be_packed(module)}, run)
    names = [name for name, _ in calls]
    groups: list[list[str]] = []
    latest: tuple[torch.Tensor, bool] | None = None  # the input, and whether there is a bias
    for name, input in calls:
        if names.count(name) > 1:
            continue
        biased = model.get_submodule(name).bias is not None
        if latest is not None and input is latest[0] and biased == latest[1]:
            groups[-1].append(name)
        else:
            groups.append([name])
        latest = input, biased
    return groups


def _can_be_packed(module: Module) -> bool:
    if type(module) is not Linear:
        return False
    return module.weight.device.type == "cpu" and onednn.multiplies(module.weight.dtype)
