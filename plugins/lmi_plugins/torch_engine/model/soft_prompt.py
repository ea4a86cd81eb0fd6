"""Soft prompts (p-tuning): embeddings that a request brings, as tokens with ids from the vocabulary's size on."""

from collections.abc import Sequence as Items

import msgspec
import torch
from transformers import PreTrainedModel

from lmi_core.errors import InvalidParameter
from lmi_plugins.torch_engine.worker.messages import EngineRequest
from lmi_plugins.torch_engine.worker.tensors import from_data


def read_soft_prompt(request: EngineRequest, model: PreTrainedModel) -> torch.Tensor | None:
    """[virtual tokens, hidden]; raises InvalidParameter."""
    if request.soft_prompt is None:
        return None
    weight = model.get_input_embeddings().weight
    assert isinstance(weight, torch.Tensor)
    table, hidden = from_data(request.soft_prompt, "the soft prompt"), weight.shape[1]
    if table.dim() != 2 or table.shape[1] != hidden:
        raise InvalidParameter(
            f"the soft prompt must be of shape [virtual tokens, {hidden}], the model's hidden size."
            f" Given: {list(table.shape)}"
        )
    if request.parameters.prompt_log_probs:
        raise InvalidParameter("a prompt with a soft prompt has no log probabilities: its virtual tokens have none")
    return table.to(weight.device, weight.dtype)


def with_soft_prompt(request: EngineRequest, model: PreTrainedModel) -> tuple[EngineRequest, torch.Tensor | None]:
    """The request with its virtual tokens in the prompt, all ahead where it has none, and their embeddings."""
    table = read_soft_prompt(request, model)
    vocabulary = model.config.get_text_config().vocab_size
    if table is None or max(request.prompt_ids, default=0) >= vocabulary:
        return request, table
    prompt_ids = [*range(vocabulary, vocabulary + len(table)), *request.prompt_ids]
    return msgspec.structs.replace(request, prompt_ids=prompt_ids), table


def embed(model: PreTrainedModel, parts: Items[tuple[list[int], torch.Tensor | None]]) -> torch.Tensor | None:
    """[1, tokens, hidden] for parts of sequences with their soft prompts; None where no token of theirs is virtual."""
    vocabulary = model.config.get_text_config().vocab_size
    if not any(table is not None and max(token_ids) >= vocabulary for token_ids, table in parts):
        return None
    embeddings = model.get_input_embeddings()
    assert isinstance(embeddings.weight, torch.Tensor)
    ids = torch.tensor([token_id for token_ids, _ in parts for token_id in token_ids], device=embeddings.weight.device)
    embedded: torch.Tensor = embeddings(torch.where(ids < vocabulary, ids, 0))
    offset = 0
    for token_ids, table in parts:
        part = slice(offset, offset := offset + len(token_ids))
        if table is not None:
            virtual = ids[part] >= vocabulary
            embedded[part][virtual] = table[ids[part][virtual] - vocabulary]
    return embedded[None]
