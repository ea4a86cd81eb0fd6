"""The result of a service's `parse_input`, item by item, and the request and the output formatter of each.

model.py files use several forms of this result, and name parameters as in transformers or LMI.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from djl_python.chat_completions.chat_utils import CHAT_FORMATTERS
from djl_python.properties_manager.properties import Properties
from djl_python.services.model_engine import ModelEngine
from lmi_core.backend import Backend
from lmi_core.errors import InvalidParameter
from lmi_core.formatter import AnswerSchema, ChatAnswer, OutputFormatter
from lmi_core.generation.request import GenerationRequest, ValidRequest
from lmi_core.payloads.payload import quote
from lmi_core.script.djl_names.inputs import Input
from lmi_core.script.formatters.output_formatters import custom_formatter, formatter_function
from lmi_core.script.formatters.request_io import CallContext
from lmi_core.serving.formatter_choice import resolve

NOT_TEXT = ("images", "tools")  # members of chats
NOT_GENERATION = (*NOT_TEXT, "output_formatter", "stream", "cached_prompt", "adapters", "request_input")
ONE_SEQUENCE = "num_return_sequences"
WHOLE_LENGTH = "max_length"  # the maximum length of prompt and output together
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


def generation_request(
    prompt: str | list[int], parameters: Mapping[str, Any], backend: Backend[Any]
) -> GenerationRequest:
    """Return the request, with parameters by LMI's names. Raise InvalidParameter for values that cannot be served."""
    for name in NOT_TEXT:
        if parameters.get(name):
            raise InvalidParameter(
                f"`{name}` cannot be given to a model function's service, which generates from text alone."
                f" Given: {quote(parameters[name])}"
            )
    given = {name: value for name, value in parameters.items() if name not in NOT_GENERATION and value is not None}
    if given.pop(ONE_SEQUENCE, 1) != 1:
        raise InvalidParameter(f"`{ONE_SEQUENCE}` must be 1; with rolling batch use `n` for several sequences")
    if isinstance(given.get("stop"), str | list):
        stop = given.pop("stop")
        given.setdefault("stop_sequences", [stop] if isinstance(stop, str) else stop)
    if isinstance(given.get("seed"), str):
        given["seed"] = _integer(given, "seed")
    if WHOLE_LENGTH in given and "max_new_tokens" not in given:
        given["max_new_tokens"] = max(1, _integer(given, WHOLE_LENGTH) - len(_ids(prompt, backend)))
    given.pop(WHOLE_LENGTH, None)
    adapter = parameters.get("adapters") or None
    if not isinstance(adapter, str | None):
        raise InvalidParameter(f"`adapters` must name one adapter for each prompt. Given: {quote(adapter)}")
    return GenerationRequest(
        prompt,
        given,
        # A chat template writes them itself
        add_special_tokens=parameters.get("output_formatter") not in CHAT_FORMATTERS,
        adapter=adapter,
    )


def _integer(given: Mapping[str, Any], name: str) -> int:
    """Return an integer, which may be given as text. Raise InvalidParameter for anything else."""
    try:
        return int(given[name])
    except (TypeError, ValueError, OverflowError):
        raise InvalidParameter(f"`{name}` must be an integer. Given: {quote(given[name])}") from None


def _ids(prompt: str | list[int], backend: Backend[Any]) -> list[int]:
    return prompt if isinstance(prompt, list) else backend.tokenizer.encode(prompt)


def new_formatter(engine: ModelEngine, item: BatchItem, configs: Properties) -> OutputFormatter:
    """Create the output formatter that the parameters of the first prompt, or the properties, choose.

    Raise ConfigurationError for an unknown name, or a function without a contract.
    """
    parameters = item.parameters[0]
    chosen = parameters.get("output_formatter") or configs.output_formatter
    if isinstance(chosen, str) and chosen in CHAT_FORMATTERS:
        return _chat_formatter(engine, item, CHAT_FORMATTERS[chosen])
    options = engine.options.model_copy(
        update={"rolling_batch": "auto", "output_formatter": chosen if isinstance(chosen, str) else None}
    )
    names = resolve(options, engine.plugins.formatters)
    streams = bool(parameters.get("stream")) or configs.enable_streaming not in ("", "false")
    base = engine.plugins.formatters.create(names.stream if streams else names.whole)
    if not callable(chosen):
        return base
    directory = Path(getattr(getattr(chosen, "__code__", None), "co_filename", ".")).parent
    context = CallContext(
        item.request_id,
        engine.backend.tokenizer,
        parameters.get("request_input"),
        configs.tgi_compat,
        time_limit=engine.options.own_code_timeout,
    )
    return custom_formatter(formatter_function(chosen, directory), base, context)


def _chat_formatter(engine: ModelEngine, item: BatchItem, name: str) -> OutputFormatter:
    answer = ChatAnswer(
        response_id=f"chatcmpl-{item.request_id}",
        model=engine.directory.resolve().name,
        tokenizer=engine.backend.tokenizer,
        log_probs=item.parameters[0].get("logprobs") is not None,
    )
    formatters = engine.plugins.formatters
    return formatters.create_for_chat(formatters.variant(name, AnswerSchema.CHAT), answer)
