"""The keys about requests and answers, which apply to every model."""

import json
import re
from typing import Annotated

from pydantic import BeforeValidator, Field, PositiveInt, ValidationInfo, field_validator

from lmi_core.chats.reasoning.formats import find_reasoning_format
from lmi_core.chats.reasoning.parser import ReasoningFormat
from lmi_core.chats.tool_calls.formats import find_format
from lmi_core.configuration.properties.declaration import NO_MPI, Names, NoEffect, Properties

BUILTIN_ENTRY_POINTS = (
    "djl_python.huggingface",
    "djl_python.tensorrt_llm",
    "djl_python.deepspeed",
    "djl_python.fastertransformer",
    "djl_python.lmi_vllm.vllm_async_service",
    "djl_python.lmi_trtllm.trtllm_async_service",
)
NEURON_ENTRY_POINTS = ("djl_python.transformers_neuronx", "djl_python.neuronx")
OWN_REASONING = "reasoning is found by the server's own parsers, whichever engine runs the model"
OWN_PARSERS = "tool calls are found by the server's own parsers, whichever engine runs the model"


def _names(value: str) -> list[str]:
    """Return the names in a JSON array, or in a list separated by commas and blanks."""
    if not value.startswith("["):
        return value.replace(",", " ").split()
    try:
        names = json.loads(value)
    except ValueError as error:
        raise ValueError(f"must be a JSON array: {error}") from None
    if not all(isinstance(name, str) for name in names):
        raise ValueError("must be a JSON array of texts")
    return list(names)


def _streaming(value: object) -> object:
    """Return the value of `option.enable_streaming`; LMI's `huggingface` is plain streaming here."""
    return True if value == "huggingface" else value


class RequestProperties(Properties):
    """How requests to a model are read and answered."""

    rolling_batch: str = Field(
        default="auto",
        description="The backend that generates, by name; auto takes the best that works here, and so does disable, in "
        "dynamic batches.",
    )
    output_formatter: str | None = Field(
        default=None,
        description="The output formatter that writes every answer, by name; chosen per request when not given.",
    )
    tgi_compat: bool = Field(default=False, description="Answer in the schema of Text Generation Inference.")
    enable_streaming: Annotated[bool, BeforeValidator(_streaming)] = Field(
        default=False, description="Stream every answer, also to clients that do not ask for it."
    )
    strict_parameters: bool = Field(
        default=False,
        description="Refuse requests with a parameter that nobody knows; otherwise it is ignored, logged once, and "
        "listed in the answer's header X-Lmi-Ignored-Parameters.",
    )
    chat_template: str | None = Field(
        default=None,
        description="Jinja template that makes a prompt of chat messages, or a file with one in the model directory; "
        "the tokenizer's own when not given.",
    )
    trust_request_chat_template: bool = Field(
        default=False,
        description="Let chats bring a chat template of their own, as `chat_template`: trust everyone who sends "
        "requests with the processor time and the memory that a program takes.",
    )
    enable_auto_tool_choice: bool = Field(
        default=True,
        description="Find the calls that a model makes where the client leaves it the choice; if not, they are a "
        "part of the text.",
    )
    tool_call_parser: str | None = Field(
        default=None,
        description="How the model writes tool calls, by the name of its format: mistral, llama3_json, hermes, ... "
        "(docs/openai.md has all); read from the chat template when not given.",
    )
    tool_parser_plugin: Annotated[str | None, NoEffect(OWN_PARSERS)] = None
    reasoning_parser: str | None = Field(
        default=None,
        description="How the model marks its reasoning, by vLLM's or SGLang's name: deepseek_r1, qwen3, glm45, "
        "openai_gptoss, ...; docs/openai.md lists them.",
    )
    enable_reasoning: bool | None = Field(
        default=None,
        description="Answer chats with the model's reasoning apart from the content; true when "
        "option.reasoning_parser is given.",
    )
    reasoning_parser_plugin: Annotated[str | None, NoEffect(OWN_REASONING)] = None
    served_model_name: str | None = Field(
        default=None,
        description="Further names that requests may give the model, with commas or blanks between, or a JSON array.",
    )
    strict_model_name: bool = Field(
        default=False,
        description="On OpenAI's and vLLM's routes take as `model` only the names of the model and of its adapters; "
        "otherwise the names that clients of one model send without meaning one, tgi, dummy and an empty text, are "
        "taken too.",
    )
    allowed_media_domains: str | None = Field(
        default=None,
        description="Hosts that the images of chats are fetched from, with commas between; * is any host on the "
        "Internet; without it images must come in the request.",
    )
    max_images: PositiveInt = Field(
        default=16, description="Most images in one chat, where the model does not take even less."
    )
    max_image_size: PositiveInt = Field(default=10 * 1024 * 1024, description="Most bytes of an image.")
    image_fetch_timeout: PositiveInt = Field(default=5, description="Most seconds that fetching an image may take.")
    predict_timeout: Annotated[PositiveInt, Names(environment=("PREDICT_TIMEOUT",))] = Field(
        default=120, description="Most seconds to wait for the next generation step."
    )
    model_loading_timeout: Annotated[PositiveInt, Names(environment=("MODEL_LOADING_TIMEOUT",))] = Field(
        default=1800, description="Most seconds that loading the model may take."
    )
    entry_point: Annotated[str | None, Names(key="entryPoint", aliases=("entrypoint", "entry_point"))] = Field(
        default=None,
        description="A Python file of the model directory (model.py when not given), or a built-in module of LMI; "
        "those are all served in the same way here, *_async_service as async_mode=true.",
    )
    handler: str = Field(
        default="handle", description="The function of the Python file that answers requests, if it has one."
    )
    enable_venv: bool = Field(
        default=False, description="Install the model's requirements.txt into an environment of its own."
    )
    async_mode: bool = Field(
        default=False,
        description="With option.rolling_batch=disable: rolling batch after all, as LMI's async mode has it.",
    )
    mpi_mode: Annotated[bool, NoEffect(NO_MPI)] = False
    parallel_loading: Annotated[bool, NoEffect("workers are always started side by side")] = False
    enable_stateful_sessions: bool = Field(
        default=True, description="Let clients of SageMaker begin sessions, which bind them to this server."
    )
    sessions_expiration: PositiveInt = Field(default=1200, description="Seconds that a session lasts.")
    max_output_size: PositiveInt = Field(
        default=64 * 1024 * 1024, description="Most bytes that the model function answers with."
    )

    @property
    def dynamic_batching(self) -> bool:
        """Whether requests run in static batches; LMI's async mode turns off only LMI's own scheduler."""
        asynchronous = self.async_mode or (self.entry_point or "").endswith("_async_service")
        return self.rolling_batch == "disable" and not asynchronous

    @property
    def media_domains(self) -> frozenset[str]:
        """The allowed domains of media URLs in lower case, also from vLLM's form, a JSON array."""
        words = re.split(r"[\s,\[\]\"']+", self.allowed_media_domains or "")
        return frozenset(word.lower() for word in words if word)

    @property
    def reasoning_format(self) -> ReasoningFormat | None:
        """The format of reasoning in chats, or None where it is not separated from the content."""
        if self.reasoning_parser is None or self.enable_reasoning is False:
            return None
        return find_reasoning_format(self.reasoning_parser)

    @property
    def served_model_names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(_names(self.served_model_name or "")))

    @property
    def script(self) -> str | None:
        """The Python file named by `option.entryPoint`."""
        return None if self.entry_point in (None, *BUILTIN_ENTRY_POINTS) else self.entry_point

    @field_validator("served_model_name")
    @classmethod
    def _readable_names(cls, value: str | None) -> str | None:
        if not all(_names(value or "")):
            raise ValueError("must be names, each of at least one character")
        return value

    @field_validator("tool_call_parser")
    @classmethod
    def _a_known_format(cls, value: str | None) -> str | None:
        if value is not None:
            find_format(value)
        return value

    @field_validator("reasoning_parser")
    @classmethod
    def _known_reasoning(cls, value: str | None) -> str | None:
        if value is not None:
            find_reasoning_format(value)
        return value

    @field_validator("enable_reasoning")
    @classmethod
    def _has_a_parser(cls, value: bool | None, info: ValidationInfo) -> bool | None:
        if value and info.data.get("reasoning_parser", "") is None:
            raise ValueError("must come with option.reasoning_parser, which says how the model marks its reasoning")
        return value

    @field_validator("entry_point")
    @classmethod
    def _a_file_or_built_in(cls, value: str | None) -> str | None:
        if value in NEURON_ENTRY_POINTS:
            raise ValueError(
                "runs models on AWS Inferentia and Trainium, which no backend here does; without it the model is served"
                " on GPU or CPU"
            )
        if value is not None and value not in BUILTIN_ENTRY_POINTS and not value.endswith(".py"):
            raise ValueError(f"must be a Python file (model.py), or one of {', '.join(BUILTIN_ENTRY_POINTS)}")
        return value
