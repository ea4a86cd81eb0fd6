"""Recurrences of layers with a state: single steps with a quarter of the passes over memory, and Mamba's recurrence
over part of a prompt, which transformers lacks.

transformers' own functions of these names are written to be read, and used only if no package has a fast one:
https://github.com/huggingface/transformers/blob/v5.0.0/src/transformers/models/qwen3_next/modeling_qwen3_next.py
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import reduce
from importlib.util import find_spec
from threading import Lock
from typing import Any, NamedTuple

import torch
from torch.nn.functional import silu, softplus
from transformers.activations import ACT2FN


def step_delta_rule(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    initial_state: torch.Tensor,
    use_qk_l2norm_in_kernel: bool = False,
    **_: object,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gated delta rule's output for one token, [rows, 1, heads, value], and the updated state.

    Query and key: [rows, 1, heads, key]; value: [rows, 1, heads, value]; decay `g` (its logarithm) and `beta`:
    [rows, 1, heads]; the state: [rows, heads, key, value].
    """
    queries, keys, values = (states[:, 0].float() for states in (query, key, value))  # [rows, heads, size]
    if use_qk_l2norm_in_kernel:
        queries, keys = (each * (each.square().sum(-1, keepdim=True) + 1e-6).rsqrt() for each in (queries, keys))
    decay, strength = g[:, 0, :, None].exp(), beta[:, 0, :, None].float()
    inputs = delta_rule_inputs(queries, keys, values, decay, strength)
    output = apply_delta_rule(inputs, initial_state, initial_state)
    return output.to(value.dtype)[:, None], initial_state


class DeltaInputs(NamedTuple):
    """What the delta rule needs of a token of each row: [rows, heads, ...]."""

    pairs: torch.Tensor  # [rows, heads, 2, key], the scaled query and the key
    values: torch.Tensor  # [rows, heads, value]
    decay: torch.Tensor  # [rows, heads, 1]
    strength: torch.Tensor
    overlap: torch.Tensor  # the product of the scaled query and the key


def delta_rule_inputs(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, decay: torch.Tensor, strength: torch.Tensor
) -> DeltaInputs:
    """Return the inputs for queries and keys, [rows, heads, key]; decay and strength: [rows, heads, 1]."""
    queries = queries * queries.shape[-1] ** -0.5
    overlap = (queries * keys).sum(-1, keepdim=True)
    return DeltaInputs(torch.stack([queries, keys], 2), values, decay, strength, overlap)


def apply_delta_rule(inputs: DeltaInputs, state: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
    """Return the output, [rows, heads, value], and write the next state to `result`.

    That may be the state itself: [rows, heads, key, value].
    """
    pairs, values, decay, strength, overlap = inputs
    read = pairs @ state  # before the decay: [rows, heads, 2, value]
    change = torch.addcmul(values, read[:, :, 1], decay, value=-1) * strength
    _update(state, decay, pairs[:, :, 1], change, result)
    return torch.addcmul(read[:, :, 0] * decay, overlap, change)


def step_mamba2(
    state: torch.Tensor,
    hidden_states: torch.Tensor,
    dt: torch.Tensor,
    A: torch.Tensor,
    B: torch.Tensor,
    C: torch.Tensor,
    D: torch.Tensor,
    dt_bias: torch.Tensor,
    z: torch.Tensor | None = None,
    **_: object,
) -> torch.Tensor:
    """Return Mamba 2's output for one token, [rows, heads, size], like `hidden_states`, and update the state,
    [rows, heads, size, state], in place.

    B and C: [rows, groups, state]. The others are expanded from one number for each head: `dt` as `hidden_states`, A to
    [heads, size, state], D and `dt_bias` to [heads, size].
    """
    inputs = hidden_states.float()
    time = softplus((dt + dt_bias.to(dt.dtype))[..., :1].float())  # [rows, heads, 1]
    sharing = inputs.shape[1] // B.shape[1]
    keys, queries = (each.float().repeat_interleave(sharing, 1) for each in (B, C))  # [rows, heads, state]
    _update(state, (time * A[:, 0, :1]).exp(), inputs * time, keys, state)
    output = (queries[:, :, None] @ state.float().mT)[:, :, 0] + inputs * D[:, :1]  # in this order, CPUs are faster
    return (output if z is None else output * silu(z)).to(hidden_states.dtype)


def _update(
    state: torch.Tensor, decay: torch.Tensor, left: torch.Tensor, right: torch.Tensor, result: torch.Tensor
) -> None:
    """Write a state, [rows, heads, left, right], times `decay`, [rows, heads, 1], plus the product of `left` and
    `right` to `result`, which may be the state.
    """
    torch.mul(state, decay[..., None], out=result)
    result.addcmul_(left[..., None].to(state.dtype), right[:, :, None].to(state.dtype))


def step_convolution(
    hidden_states: torch.Tensor,
    conv_state: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: str | None = None,
) -> torch.Tensor:
    """Return a causal convolution's output for one token, [rows, channels, 1], like `hidden_states`, and update the
    state, the last inputs, [rows, channels, tokens], in place.

    Weight: [channels, tokens]. PyTorch's own convolution takes three times as long for so few tokens.
    """
    conv_state.copy_(torch.cat([conv_state[..., 1:], hidden_states], -1))
    output = reduce(torch.add, (conv_state.float() * weight.float()).unbind(-1))  # faster than a sum over so few
    if bias is not None:
        output = output + bias
    if activation is not None:
        output = ACT2FN[activation](output)
    return output.to(hidden_states.dtype)[..., None]


def scan_mamba(
    state: torch.Tensor,
    hidden_states: torch.Tensor,
    dt: torch.Tensor,
    A: torch.Tensor,
    B: torch.Tensor,
    C: torch.Tensor,
    D: torch.Tensor,
    z: torch.Tensor,
    delta_bias: torch.Tensor,
    **_: object,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return Mamba's output for tokens after those that led to a state, [rows, size, state], and the state after them.

    `hidden_states`, the output, `dt` and `z`: [rows, size, tokens]; A: [size, state]; B and C: [rows, state, tokens].
    """
    time = softplus(dt + delta_bias[:, None].to(dt.dtype)).float()
    inputs, state, outputs = time * hidden_states.float(), state.float(), []
    for at in range(hidden_states.shape[-1]):
        state = (time[..., at, None] * A).exp() * state + inputs[..., at, None] * B[:, None, :, at].float()
        outputs.append((state @ C[..., at, None].float())[..., 0])
    output = torch.stack(outputs, -1) + hidden_states * D[:, None]
    return (output * silu(z)).to(hidden_states.dtype), state


STEPS: dict[str, Callable[..., Any]] = {  # by transformers' name; used if no package has a faster implementation
    name: step
    for name, package, step in (
        ("torch_recurrent_gated_delta_rule", "fla", step_delta_rule),
        ("mamba2_selective_state_update", "mamba_ssm", step_mamba2),
        ("causal_conv1d_update", "causal_conv1d", step_convolution),
    )
    if find_spec(package) is None
}


_swapping = Lock()  # engines in several threads run the same classes


def steps_from(state: torch.Tensor | None) -> dict[str, Callable[..., Any]]:
    """Return the functions for sequences with this state, if any, by transformers' names."""
    if state is None:
        return STEPS
    # No package's implementation takes an initial state. Zamba has several heads, [rows, heads, size, state], and calls
    # the function for each in order.
    parts = iter(state.unbind(1) if state.dim() == 4 else [state])
    return {**STEPS, "mamba_selective_scan": lambda *inputs, **options: scan_mamba(next(parts), *inputs, **options)}


@contextmanager
def calling(functions: Mapping[str, Callable[..., Any]], module: torch.nn.Module) -> Iterator[None]:
    """Temporarily make the code of a module's class call these functions, by transformers' names."""
    names = vars(sys.modules[type(module).__module__])
    with _swapping:
        before = {name: names[name] for name in functions if name in names}
        try:
            names.update({name: functions[name] for name in before})
            yield
        finally:
            names.update(before)
