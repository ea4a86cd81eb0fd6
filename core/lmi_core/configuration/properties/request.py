"""The keys about requests and answers, which apply to every model."""

import json
import re
from functools import cached_property
from typing import Annotated

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    ValidationInfo,
    field_validator,
)

from lmi_core.configuration.properties.declaration import NO_MPI, Names, NoEffect, Properties, checked_by
from lmi_core.parsing.reasoning.formats import find_reasoning_format
from lmi_core.parsing.reasoning.parser import ReasoningFormat
from lmi_core.parsing.tool_calls.formats import find_format

BUILTIN_ENTRY_POINTS = (
    "djl_python.huggingface",
    "djl_python.tensorrt_llm",
    "djl_python.deepspeed",
    "djl_python.fastertransformer",
    "djl_python.lmi_vllm.vllm_async_service",
    "djl_python.lmi_trtllm.trtllm_async_service",
)
SELECTIONS = ("auto", "disable")  # values of option.rolling_batch that do not name a backend
_NEURON = "is for AWS Inferentia and Trainium, which no backend supports; remove it to serve the model on a GPU or CPU"
_ESTIMATORS = (
    "is not part of this server: remove it, and let model.py load the model in an @init_handler and answer in a "
    "@prediction_handler (docs/reference/djl_python.md)"
)
_IMAGES = "generates images, but this server generates text"
# Each in the spellings of DJLServing's versions and examples.
UNSUPPORTED_ENTRY_POINTS = {
    "djl_python.transformers_neuronx": _NEURON,
    "djl_python.transformers-neuronx": _NEURON,
    "djl_python.transformersneuronx": _NEURON,
    "djl_python.neuronx": _NEURON,
    "djl_python.sklearn_handler": _ESTIMATORS,
    "djl_python.xgboost_handler": _ESTIMATORS,
    "djl_python.stable-diffusion": _IMAGES,
    "djl_python.stable_diffusion": _IMAGES,
    "djl_python.stable_diffusion_inf2": _IMAGES,
}
DEFAULT_TIMEOUT = 120  # seconds
OWN_REASONING = "the server's own parsers extract the reasoning, whichever engine runs the model"
OWN_PARSERS = "the server's own parsers extract tool calls, whichever engine runs the model"


def _hosts(given: str | None) -> frozenset[str]:
    words = re.split(r"[\s,\[\]\"']+", given or "")
    return frozenset(word.lower() for word in words if word)


def _names(value: str) -> list[str]:
    """Return the names in a JSON array, or in a list separated by commas and spaces."""
    if not value.startswith("["):
        return value.replace(",", " ").split()
    if not all(names := _strings(value)):
        raise ValueError("must be a JSON array of strings that are not empty")
    return names


def _strings(value: str) -> list[str]:
    try:
        strings = json.loads(value)
    except ValueError as error:
        raise ValueError(f"must be a JSON array: {error}") from None
    if not all(isinstance(each, str) for each in strings):
        raise ValueError("must be a JSON array of strings")
    return list(strings)


def _questions(given: str) -> list[str]:
    lines = _strings(given) if given.startswith("[") else given.splitlines()
    return [*filter(None, map(str.strip, lines))]


def _check_private_hosts(given: str) -> None:
    if "*" in given:
        raise ValueError("must be the names or addresses of hosts: requests would reach any host of the network")


def _check_entry_point(value: str) -> None:
    if value in UNSUPPORTED_ENTRY_POINTS:
        raise ValueError(UNSUPPORTED_ENTRY_POINTS[value])
    if value not in BUILTIN_ENTRY_POINTS and not value.endswith(".py"):
        raise ValueError(f"must be a Python file (model.py), or one of {', '.join(BUILTIN_ENTRY_POINTS)}")


def _selection(value: str) -> str:
    return value.lower() if value.lower() in SELECTIONS else value


def _streaming(value: object) -> object:
    """Return the value of `option.enable_streaming`; LMI's `huggingface` is plain streaming here."""
    return True if str(value).lower() == "huggingface" else value


class RequestProperties(Properties):
    """How requests to a model are read and answered."""

    rolling_batch: Annotated[str, AfterValidator(_selection)] = Field(
        default="auto",
        description="The name of the backend. auto and disable select the best one that works on this machine; "
        "disable uses dynamic batching.",
    )
    output_formatter: str | None = Field(
        default=None,
        description="The name of the output formatter for every answer. Default: chosen per request.",
    )
    tgi_compat: bool = Field(default=False, description="Answer in Text Generation Inference's schema.")
    enable_streaming: Annotated[bool, BeforeValidator(_streaming)] = Field(
        default=False, description="Stream every answer, even if the client does not ask for it."
    )
    strict_parameters: bool = Field(
        default=False,
        description="Refuse requests with unknown parameters. By default, unknown parameters are ignored, logged "
        "once, and listed in the response header X-Lmi-Ignored-Parameters.",
    )
    chat_template: str | None = Field(
        default=None,
        description="Jinja template that turns chat messages into a prompt, or the name of a file in the model "
        "directory that contains one. Default: the tokenizer's template, or chat_template.jinja if the model "
        "directory has no tokenizer.",
    )
    trust_request_chat_template: bool = Field(
        default=False,
        description="Allow requests to send a chat template as `chat_template`. A template is a program: enable this "
        "only if you trust every client with the CPU time and memory that it can use.",
    )
    enable_auto_tool_choice: bool = Field(
        default=True,
        description="Extract tool calls when `tool_choice` is auto; if false, they remain part of the text.",
    )
    tool_call_parser: Annotated[str | None, checked_by(find_format)] = Field(
        default=None,
        description="The format in which the model writes tool calls: mistral, llama3_json, hermes, ... "
        "(docs/reference/openai.md lists all). Default: detected from the chat template.",
    )
    tool_parser_plugin: Annotated[str | None, NoEffect(OWN_PARSERS)] = None
    reasoning_parser: Annotated[str | None, checked_by(find_reasoning_format)] = Field(
        default=None,
        description="The format in which the model marks its reasoning, as vLLM or SGLang names it: deepseek_r1, "
        "qwen3, glm45, openai_gptoss, ... (docs/reference/openai.md lists all).",
    )
    enable_reasoning: bool | None = Field(
        default=None,
        description="Return the reasoning of chats separately from the content. Default: true if "
        "option.reasoning_parser is set.",
    )
    reasoning_parser_plugin: Annotated[str | None, NoEffect(OWN_REASONING)] = None
    served_model_name: Annotated[str | None, checked_by(_names)] = Field(
        default=None,
        description="Additional names of the model for requests, separated by commas or spaces, or as a JSON array.",
    )
    example_questions: Annotated[str | None, checked_by(_questions)] = Field(
        default=None,
        description="Questions that the chat page suggests in an empty chat, one per line or as a JSON array.",
    )
    strict_model_name: bool = Field(
        default=False,
        description="On OpenAI's and vLLM's routes, accept only the names of the model and of its adapters as "
        "`model`. If false, the placeholders tgi, dummy and the empty string are accepted too and, with "
        "option.tgi_compat, any name.",
    )
    enable_tokenizer_info_endpoint: bool = Field(
        default=False,
        description="Serve the tokenizer's configuration, including its chat template, at GET /tokenizer_info.",
    )
    allowed_media_domains: str | None = Field(
        default=None,
        description="Hosts from which chat images may be fetched, separated by commas; * allows any host on the "
        "Internet. Default: none, so images must be in the request.",
    )
    allowed_private_media_domains: Annotated[str | None, checked_by(_check_private_hosts)] = Field(
        default=None,
        description="Hosts with private addresses from which chat images may be fetched, separated by commas, such "
        "as an image store in the same network. Default: none.",
    )
    max_images: PositiveInt = Field(
        default=16, description="Maximum number of images in one chat; the model may allow fewer."
    )
    max_image_size: PositiveInt = Field(default=10 * 1024 * 1024, description="Maximum size of an image, in bytes.")
    image_fetch_timeout: PositiveInt = Field(default=5, description="Maximum time for fetching an image, in seconds.")
    predict_timeout: Annotated[PositiveInt | None, Names(environment=("PREDICT_TIMEOUT",))] = Field(
        default=None,
        description="Maximum time for a whole answer, in seconds, from when its request enters the queue. Default: "
        "unlimited for generation, whose phases have limits of their own; 120 for each call of the model's own "
        "code.",
    )
    queue_timeout: NonNegativeFloat | None = Field(
        default=None,
        description="Maximum time that a request waits in the queue, in seconds; 0 means unlimited. A request that "
        "would certainly exceed it is refused at once. Default: unlimited.",
    )
    first_token_timeout: NonNegativeFloat | None = Field(
        default=None,
        description="Maximum time from the end of a request's wait in the queue to its first token, in seconds; 0 "
        "means unlimited. Default: 120, or unlimited with option.predict_timeout.",
    )
    max_num_queued_tokens: PositiveInt | None = Field(
        default=None,
        description="Maximum total number of prompt tokens of requests that have no first token yet. Requests beyond "
        "it are refused; a request that would be the only one is always accepted. Default: unlimited.",
    )
    inter_token_timeout: NonNegativeFloat | None = Field(
        default=None,
        description="Maximum time between two tokens, in seconds; 0 means unlimited. Default: 120, or unlimited with "
        "option.predict_timeout.",
    )
    sse_keep_alive_interval: NonNegativeFloat = Field(
        default=0,
        description="Time without an event after which a stream of server-sent events gets a comment, in seconds, so "
        "that clients and proxies keep the connection open; 0 disables it.",
    )
    model_loading_timeout: Annotated[PositiveInt, Names(environment=("MODEL_LOADING_TIMEOUT",))] = Field(
        default=1800, description="Maximum time for loading the model, in seconds."
    )
    entry_point: Annotated[
        str | None, Names(key="entryPoint", aliases=("entrypoint", "entry_point")), checked_by(_check_entry_point)
    ] = Field(
        default=None,
        description="A Python file in the model directory, or one of LMI's built-in modules. These are all treated "
        "alike, but *_async_service implies option.async_mode=true. Default: model.py.",
    )
    handler: str = Field(default="handle", description="The function in the Python file that answers requests.")
    enable_venv: bool = Field(
        default=False, description="Install the model's requirements.txt into a separate virtual environment."
    )
    async_mode: bool = Field(
        default=False,
        description="LMI's async mode: use rolling batch even with option.rolling_batch=disable, and answer in the "
        "schema of LMI's newest containers, with vLLM's completions and chats on LMI's routes.",
    )
    mpi_mode: Annotated[bool, NoEffect(NO_MPI)] = False
    parallel_loading: Annotated[bool, NoEffect("workers always start in parallel")] = False
    enable_stateful_sessions: bool = Field(
        default=True, description="Allow SageMaker clients to open sessions, which bind them to this server."
    )
    sessions_expiration: PositiveInt = Field(default=1200, description="Lifetime of a session, in seconds.")
    response_store_size: NonNegativeInt = Field(
        default=64 * 1024 * 1024,
        description="Maximum memory for stored responses of /v1/responses, which later requests can read or "
        "continue, in bytes. The least recently used are dropped first; 0 stores none.",
    )
    max_output_size: PositiveInt = Field(
        default=64 * 1024 * 1024, description="Maximum size of an answer of the model function, in bytes."
    )

    @property
    def any_model_name(self) -> bool:
        """Whether requests may name another model than the only one, as TGI's clients do."""
        return self.tgi_compat and not self.strict_model_name

    @property
    def own_code_timeout(self) -> int:
        """The maximum seconds of a call of the model's own code, or of the wait for the next part of its stream."""
        return self.predict_timeout or DEFAULT_TIMEOUT

    @property
    def dynamic_batching(self) -> bool:
        """Whether requests run in static batches; LMI's async mode turns off only LMI's own scheduler."""
        return self.rolling_batch == "disable" and self.asynchronous is None

    @cached_property  # every request asks; a copy keeps it, so none may change `async_mode` or `entry_point`
    def asynchronous(self) -> str | None:
        """The key and value that select LMI's async mode, which has its own schema; or None."""
        if self.async_mode:
            return "option.async_mode=true"
        entry_point = self.entry_point or ""
        return f"option.entryPoint={entry_point}" if entry_point.endswith("_async_service") else None

    @property
    def media_domains(self) -> frozenset[str]:
        """The allowed domains of media URLs in lower case, also from vLLM's form, a JSON array."""
        return _hosts(self.allowed_media_domains) | self.private_media_domains

    @property
    def private_media_domains(self) -> frozenset[str]:
        """The lower-case domains of media URLs that may have private addresses."""
        return _hosts(self.allowed_private_media_domains)

    @cached_property  # every chat asks; a copy keeps it, so none may change `reasoning_parser` or `enable_reasoning`
    def reasoning_format(self) -> ReasoningFormat | None:
        """The format of reasoning in chats; None if reasoning is not separated from the content."""
        if self.reasoning_parser is None or self.enable_reasoning is False:
            return None
        return find_reasoning_format(self.reasoning_parser)

    @property
    def served_model_names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(_names(self.served_model_name or "")))

    @property
    def questions(self) -> tuple[str, ...]:
        """The questions of `option.example_questions`."""
        return tuple(_questions(self.example_questions or ""))

    @property
    def script(self) -> str | None:
        """The Python file named by `option.entryPoint`."""
        return None if self.entry_point in (None, *BUILTIN_ENTRY_POINTS) else self.entry_point

    @field_validator("enable_reasoning")
    @classmethod
    def _has_a_parser(cls, value: bool | None, info: ValidationInfo) -> bool | None:
        if value and info.data.get("reasoning_parser", "") is None:
            raise ValueError("requires option.reasoning_parser, the format in which the model marks its reasoning")
        return value
