"""The result of a service's `parse_input`, item by item; model.py files use several forms."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from lmi_core.generation.request import ValidRequest
from lmi_core.payloads.payload import quote
from lmi_core.script.djl_names.inputs import Input

# The prompts of all items, the number per item, their parameters, errors by item index, the items.
ParsedBatch = tuple[Sequence[Any], Sequence[int], Any, Mapping[int, str], Sequence[Input]]


@dataclass
class BatchItem:
    """One request of a batch."""

    inputs: Input
    prompts: list[Any]
    parameters: list[dict[str, Any]]  # one per prompt
    error: str | None = None
    requests: list[ValidRequest] = field(default_factory=list)
    request_id: str = ""

    def __post_init__(self) -> None:
        self.request_id = self.inputs.get_property("x-request-id") or uuid4().hex


def read_batch(parsed: ParsedBatch, inputs: Input) -> list[BatchItem]:
    """Return an item for each request. The sizes may omit requests with errors."""
    data, sizes, parameters, errors, _ = parsed
    items: list[BatchItem] = []
    of_prompt = _of_prompts(parameters, len(data))
    left, places, readable = iter(sizes), 0, 0
    leaves_out = len(sizes) < inputs.get_batch_size()
    for index, item in enumerate(inputs.get_batches()):
        error = errors.get(index)
        size = 0 if error is not None and leaves_out else next(left)
        prompts = list(data[places : places + size])
        own = [dict(of_prompt(readable, places + at)) for at in range(size)]
        items.append(BatchItem(item, prompts, own, error or _wrong(prompts)))
        places += size
        readable += error is None
    return items


def _wrong(prompts: list[Any]) -> str | None:
    """Return the reason why these are not prompts, or None; a body without `inputs` counts as one prompt."""
    if not prompts:
        return "`inputs` must contain at least one prompt. Given: none"
    wrong = next((each for each in prompts if not _is_prompt(each)), None)
    return None if wrong is None else f"`inputs` must be a string, or a list of strings. Given: {quote(wrong)}"


def _is_prompt(data: Any) -> bool:
    return isinstance(data, str) or (isinstance(data, list) and all(isinstance(each, int) for each in data))


def _of_prompts(parameters: Any, prompts: int) -> Callable[[int, int], Mapping[str, Any]]:
    """Return a lookup of parameters by item index and prompt index, given per prompt, per item, or once for all."""
    if isinstance(parameters, Mapping):
        return lambda item, prompt: parameters
    if len(parameters) == prompts:
        return lambda item, prompt: parameters[prompt]
    return lambda item, prompt: parameters[item] if item < len(parameters) else {}
