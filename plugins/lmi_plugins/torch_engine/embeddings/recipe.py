"""The recipe for a model's vectors, from sentence-transformers' files in its folder."""

import json
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Items
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from lmi_core.errors import ConfigurationError
from lmi_core.inspection.layers import MODULES, PROMPTS, is_outside, outside_layer, prompts_of
from lmi_plugins.torch_engine.messages.embeddings import EmbeddingOptions, Pooling

LENGTH_FILE = "sentence_bert_config.json"
CONFIG = "config.json"
# sentence-transformers' names of pooling modes, in older and newer files.
MODE_KEYS: dict[str, Pooling] = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
    "mean_sqrt_len_tokens": "mean_sqrt_len",
}


def pool(states: torch.Tensor, modes: Items[Pooling]) -> torch.Tensor:
    """Return the vector, [modes * hidden], of a text's hidden states, [tokens, hidden]."""
    states = states.float()
    return torch.cat([_POOLS[mode](states) for mode in modes])


def _weighted_mean(states: torch.Tensor) -> torch.Tensor:
    """Return the mean weighted by the tokens' positions, from 1."""
    weights = torch.arange(1, len(states) + 1, device=states.device, dtype=states.dtype)
    return (states * weights[:, None]).sum(0) / weights.sum()


# The order in which sentence-transformers concatenates them.
_POOLS: Mapping[Pooling, Callable[[torch.Tensor], torch.Tensor]] = {
    "cls": lambda states: states[0],
    "max": lambda states: states.amax(0),
    "mean": lambda states: states.mean(0),
    "mean_sqrt_len": lambda states: states.sum(0) / len(states) ** 0.5,
    "weightedmean": _weighted_mean,
    "lasttoken": lambda states: states[-1],
}
MODES: tuple[Pooling, ...] = tuple(_POOLS)


def to_length_1(vector: torch.Tensor) -> torch.Tensor:
    return functional.normalize(vector, dim=0)


@dataclass(frozen=True, slots=True)
class Recipe:
    """The steps from hidden states to a vector: pooling, further layers, and optional normalization."""

    modes: tuple[Pooling, ...]
    normalize: bool  # normalize a vector; for a score, apply `activation`
    layers: tuple[Path | None, ...] = ()  # folders of dense layers, in order; None stands for normalization in between
    max_length: int | None = None  # tokens
    lower_case: bool = False
    default_prompt: str | None = None  # sentence-transformers puts it before each text; this server does not
    prompts: Mapping[str, str] = field(default_factory=dict)
    activation: Callable[[torch.Tensor], torch.Tensor] = to_length_1


def has_recipe(folder: Path) -> bool:
    """Return whether the folder contains a sentence-transformers model with one vector per text."""
    return (folder / MODULES).is_file() and any(_kind(each) == "Pooling" for each in _modules(folder))


def read_recipe(folder: Path, default: Pooling, options: EmbeddingOptions) -> Recipe:
    """Return the recipe in the folder or, without one, vLLM's default pooling with normalization.

    The options take precedence. Raise ConfigurationError for an unsupported recipe.
    """
    recipe = _read(folder) if has_recipe(folder) else Recipe((default,), normalize=True)
    if options.pooling is not None:
        recipe = replace(recipe, modes=(options.pooling,))
    return recipe if options.normalize is None else replace(recipe, normalize=options.normalize)


def _read(folder: Path) -> Recipe:
    modes: tuple[Pooling, ...] = ()
    layers: list[Path | None] = []
    for module in _modules(folder):
        kind, path = _kind(module), str(module.get("path", ""))
        if is_outside(path):
            raise ConfigurationError(outside_layer(folder, path))
        match kind:
            case "Transformer" if path in ("", "."):
                pass
            case "Dropout":
                pass  # only used in training
            case "Pooling":
                modes = _pooling_modes(_object(folder / path / CONFIG))
            case "Dense":
                layers.append(folder / path)
            case "Normalize":
                layers.append(None)
            case _:
                raise ConfigurationError(
                    f"{folder / MODULES}: its module {kind} ({path or 'no path'}) is not supported: vectors are "
                    "made with Transformer in the model's own folder, Pooling, Dense and Normalize"
                )
    normalize = bool(layers) and layers[-1] is None
    length = _object(folder / LENGTH_FILE)
    config = _object(folder / PROMPTS)
    prompts = prompts_of(config)
    return Recipe(
        modes,
        normalize,
        tuple(layers[:-1] if normalize else layers),
        length.get("max_seq_length"),
        bool(length.get("do_lower_case")),
        prompts.get(config.get("default_prompt_name", "")) or None,
        prompts,
    )


def _pooling_modes(config: dict[str, Any]) -> tuple[Pooling, ...]:
    named = config.get("pooling_mode", [])
    asked = [named] if isinstance(named, str) else list(named)
    asked += [key for key, value in config.items() if key.startswith("pooling_mode_") and value is True]
    found = {MODE_KEYS.get(name, name) for name in asked}
    if unknown := found.difference(MODES):
        raise ConfigurationError(f"the pooling {', '.join(sorted(unknown))} is unknown; known: {', '.join(MODES)}")
    return tuple(mode for mode in MODES if mode in found) or ("mean",)


def _modules(folder: Path) -> list[dict[str, Any]]:
    content: Any = _parse(folder / MODULES)
    if not isinstance(content, list) or not all(isinstance(each, dict) for each in content):
        raise ConfigurationError(f"{folder / MODULES} must be a JSON array of objects")
    return content


def _kind(module: dict[str, Any]) -> str:
    """Return the name of a module's class, without the package, which sentence-transformers has renamed."""
    return str(module.get("type", "")).rpartition(".")[2]


def _object(path: Path) -> dict[str, Any]:
    """Return the JSON object of a file; an empty one if the file does not exist."""
    content: Any = _parse(path) if path.is_file() else {}
    if not isinstance(content, dict):
        raise ConfigurationError(f"{path} must be a JSON object")
    return content


def _parse(path: Path) -> object:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigurationError(f"{path} is not valid JSON: {error}") from None
