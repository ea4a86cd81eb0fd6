"""Linear modules on the CPU whose weights lie as oneDNN's products read them fastest."""

from collections.abc import Callable
from collections.abc import Sequence as Items

import torch
from torch.nn import Linear, Module, Parameter
from torch.nn.functional import pad

ROWS = 512  # that the order of the weights is chosen for; it is no worse with fewer
FEW_ROWS = 64  # products of as many are compiled at once, as streams that run would wait for them
DTYPES = (torch.float32, torch.bfloat16)


class PackedProduct:
    """Of linear modules that are called with one input after the other: they are computed as one, at the first call."""

    def __init__(self, linears: Items[Linear]) -> None:
        self._sizes = [linear.out_features for linear in linears]
        weights = [linear.weight.detach() for linear in linears]
        self._weight = torch.ops.mkldnn._reorder_linear_weight(torch.cat(weights), ROWS)
        biases = [linear.bias.detach() for linear in linears if linear.bias is not None]
        self._bias = torch.cat(biases) if biases else None
        self._input: torch.Tensor | None = None  # that the outputs are of
        self._outputs: Items[torch.Tensor] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self._weight.shape, self._bias is not None)

    def compile(self) -> None:
        """For each number of rows, up to few, that it is computed for. Products of one shape share what comes of it."""
        for rows in {_made_for(rows) for rows in range(1, FEW_ROWS + 1)}:
            self._multiply(torch.zeros(rows, self._weight.shape[1], dtype=self._weight.dtype))

    def output(self, place: int, input: torch.Tensor) -> torch.Tensor:
        """[..., out] of the module in this place."""
        if len(self._sizes) == 1:
            return self._compute(input)
        if input is not self._input:
            self._input, self._outputs = input, torch.split(self._compute(input), self._sizes, -1)
        output = self._outputs[place]
        if place == len(self._sizes) - 1:
            self._input, self._outputs = None, ()
        return output

    def _compute(self, input: torch.Tensor) -> torch.Tensor:
        rows = input.shape[:-1].numel()
        if (missing := _made_for(rows) - rows) == 0:
            return self._multiply(input)
        padded = pad(input.reshape(rows, -1), (0, 0, 0, missing))
        return self._multiply(padded)[:rows].view(*input.shape[:-1], -1)

    def _multiply(self, input: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = torch.ops.mkldnn._linear_pointwise(input, self._weight, self._bias, "none", [], "")
        return output


def _made_for(rows: int) -> int:
    """As many, or a few more: oneDNN compiles a product for each number of rows, which takes time, and keeps it."""
    step = 1 << max(rows.bit_length() - 2, 0)
    return -(-rows // step) * step


class PackedLinear(Linear):
    """Shows a weight that has the shape, but no numbers: those are the product's alone."""

    def __init__(self, linear: Linear, product: PackedProduct, place: int) -> None:
        Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight = Parameter(linear.weight.new_full((1, 1), torch.nan).expand(linear.weight.shape), False)
        self.bias = linear.bias
        self._product, self._place = product, place

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return self._product.output(self._place, input)


@torch.inference_mode()
def pack_linears(model: Module, run: Callable[[], object]) -> None:
    """In place of those that `run`, a forward pass, calls once.

    Those of experts, which are called with any number of tokens, stay as they are: each number takes some time and
    memory of its own.
    """
    products: dict[tuple[int, ...], PackedProduct] = {}
    for names in _groups(model, run):
        linears = [linear for name in names if isinstance(linear := model.get_submodule(name), Linear)]
        product = PackedProduct(linears)
        for place, (name, linear) in enumerate(zip(names, linears, strict=True)):
            model.set_submodule(name, PackedLinear(linear, product, place))
        products[product.shape] = product
    for product in products.values():
        product.compile()


def _groups(model: Module, run: Callable[[], object]) -> list[list[str]]:
    """The names of the modules, those together that are called one after the other with the same input."""
    calls = _calls(model, run)
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


def _calls(model: Module, run: Callable[[], object]) -> list[tuple[str, torch.Tensor]]:
    """Of the modules that can be packed, in order, with their inputs."""
    calls: list[tuple[str, torch.Tensor]] = []

    def noting(name: str) -> Callable[..., None]:
        return lambda _, inputs: calls.append((name, inputs[0]))

    modules = {name: module for name, module in model.named_modules() if _can_be_packed(module)}
    hooks = [module.register_forward_pre_hook(noting(name)) for name, module in modules.items()]
    try:
        run()
    finally:
        for hook in hooks:
            hook.remove()
    return calls


def _can_be_packed(module: Module) -> bool:
    if type(module) is not Linear or not torch._C._has_mkldnn:
        return False
    weight = module.weight
    if weight.device.type != "cpu" or weight.dtype not in DTYPES:
        return False
    return weight.dtype != torch.bfloat16 or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
