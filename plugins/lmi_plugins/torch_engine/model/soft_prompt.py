"""Soft prompts (p-tuning): embeddings in a request, as tokens with ids from the vocabulary size on."""

from collections.abc import Sequence as Items

import msgspec
import torch
from transformers import PreTrainedModel

from lmi_core.errors import InvalidParameter
from lmi_plugins.torch_engine.messages.requests import EngineRequest, TensorData
from lmi_plugins.torch_engine.messages.tensors import from_data


def embedding_weight(model: PreTrainedModel) -> torch.Tensor:
    """Return the embeddings of the model's vocabulary, [vocabulary, hidden]."""
    weight = model.get_input_embeddings().weight
    assert isinstance(weight, torch.Tensor)
    return weight


def with_soft_prompt(
    request: EngineRequest, soft_prompt: TensorData, model: PreTrainedModel
) -> tuple[EngineRequest, torch.Tensor]:
    """Return the request with its virtual tokens in the prompt, ahead of it if it has none, and their embeddings."""
    table = _read(soft_prompt, request, model)
    vocabulary = model.config.get_text_config().vocab_size
    if max(request.prompt_ids, default=0) >= vocabulary:
        return request, table
    prompt_ids = [*range(vocabulary, vocabulary + len(table)), *request.prompt_ids]
    return msgspec.structs.replace(request, prompt_ids=prompt_ids), table


def _read(soft_prompt: TensorData, request: EngineRequest, model: PreTrainedModel) -> torch.Tensor:
    """Return the soft prompt, [virtual tokens, hidden]; raise InvalidParameter if it does not fit."""
    table, weight = from_data(soft_prompt, "the soft prompt"), embedding_weight(model)
    hidden = weight.shape[1]
    if table.dim() != 2 or table.shape[1] != hidden:
        raise InvalidParameter(
            f"the soft prompt must be of shape [virtual tokens, {hidden}], the model's hidden size."
            f" Given: {list(table.shape)}"
        )
    if request.parameters.prompt_log_probs:
        raise InvalidParameter(
            "prompt log probabilities cannot be returned with a soft prompt, because its virtual tokens have none"
        )
    return table.to(weight.device, weight.dtype)


def embed(
    model: PreTrainedModel, token_ids: list[int], soft_prompts: Items[tuple[slice, torch.Tensor]]
) -> torch.Tensor | None:
    """Return the embeddings, [1, tokens, hidden], of tokens of which some rows belong to soft prompts.

    None means that no token is virtual, so the model can look the ids up itself.
    """
    vocabulary = model.config.get_text_config().vocab_size
    if not any(max(token_ids[rows]) >= vocabulary for rows, _ in soft_prompts):
        return None
    ids = torch.tensor(token_ids, device=embedding_weight(model).device)
    embedded: torch.Tensor = model.get_input_embeddings()(torch.where(ids < vocabulary, ids, 0))
    for rows, table in soft_prompts:
        virtual = ids[rows] >= vocabulary
        embedded[rows][virtual] = table[ids[rows][virtual] - vocabulary]
    return embedded[None]
