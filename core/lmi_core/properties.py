"""The keys of `serving.properties`: how one is declared, and those that the core reads itself."""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveInt,
    ValidationInfo,
    field_validator,
)
from pydantic.fields import FieldInfo

from lmi_core.hosts import Host
from lmi_core.reasoning.formats import find_reasoning_format
from lmi_core.reasoning.parser import ReasoningFormat
from lmi_core.tool_calls.formats import find_format

OPTION_PREFIX = "option."

BUILTIN_ENTRY_POINTS = (
    "djl_python.huggingface",
    "djl_python.tensorrt_llm",
    "djl_python.deepspeed",
    "djl_python.fastertransformer",
    "djl_python.lmi_vllm.vllm_async_service",
    "djl_python.lmi_trtllm.trtllm_async_service",
)
NEURON_ENTRY_POINTS = ("djl_python.transformers_neuronx", "djl_python.neuronx")
PYTHON_ENGINES = ("Python", "MPI", "DeepSpeed", "FasterTransformer")
# Those that run models of other kinds in DJLServing, without Python.
OTHER_ENGINES = (
    "PyTorch", "OnnxRuntime", "TensorFlow", "TensorRT", "MXNet", "Rust", "Llama", "PaddlePaddle", "TFLite",
    "XGBoost", "LightGBM", "fastText", "SentencePiece",
)  # fmt: skip
TEXT_GENERATION = "text-generation"

NO_MPI = "option.rolling_batch chooses the engine, which starts the processes that it needs without MPI"
OWN_REASONING = "reasoning is found by the server's own parsers, whichever engine runs the model"
OWN_PARSERS = "tool calls are found by the server's own parsers, whichever engine runs the model"
ALL_DEVICES = (
    "the engine takes as many devices as it is told to; which ones, the environment variable CUDA_VISIBLE_DEVICES says"
)

_NOUNS = {
    "boolean": "true or false",
    "integer": "an integer",
    "number": "a number",
    "object": "a JSON object",
    "string": "text",
}
_BOUNDS = {
    "exclusiveMinimum": "greater than",
    "minimum": "no less than",
    "exclusiveMaximum": "less than",
    "maximum": "no more than",
}


@dataclass(frozen=True)
class Names:
    """What a property is called besides its field's name: its key, other spellings, environment variables."""

    key: str | None = None
    aliases: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()


@dataclass(frozen=True)
class NoEffect:
    """Marks a property that is taken as LMI has it and changes nothing here. A value but the default is explained."""

    reason: str


class DeclaredKey(NamedTuple):
    """A declared property in words for a person; keys are whole, environment variables in order of precedence."""

    field: str
    key: str
    aliases: tuple[str, ...]
    environment: tuple[str, ...]
    type: str
    default: str
    help: str
    no_effect: str | None = None  # why


class Properties(BaseModel):
    """Keys that share a prefix. A validator's `ValueError` ends the sentence that the key begins: "must be even"."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    prefix: ClassVar[str] = OPTION_PREFIX


def _words(value: str | None) -> list[str]:
    """The words of a list with blanks or commas between."""
    return (value or "").replace(",", " ").split()


def declared(properties_type: type[Properties]) -> list[DeclaredKey]:
    """Every key of the type, inherited ones first."""
    schemas = properties_type.model_json_schema()["properties"]
    return [
        _declared_key(properties_type.prefix, name, field, _in_words(schemas[name]))
        for name, field in properties_type.model_fields.items()
    ]


def environment_variable(key: str) -> str:
    """`OPTION_X` for `option.x`, `SERVING_X` for `x`."""
    if key.startswith(OPTION_PREFIX):
        return "OPTION_" + key.removeprefix(OPTION_PREFIX).upper()
    return "SERVING_" + key.upper()


def _declared_key(prefix: str, name: str, field: FieldInfo, type_in_words: str) -> DeclaredKey:
    names = next((each for each in field.metadata if isinstance(each, Names)), Names())
    no_effect = next((each.reason for each in field.metadata if isinstance(each, NoEffect)), None)
    key, *aliases = (prefix + spelling for spelling in (names.key or name, *names.aliases))
    variables = [environment_variable(spelling) for spelling in (key, *aliases)]
    return DeclaredKey(
        field=name,
        key=key,
        aliases=tuple(aliases),
        environment=tuple(dict.fromkeys([*variables, *names.environment])),
        type=type_in_words,
        default="" if field.is_required() else _as_text(field.default),
        help=field.description or (f"Accepted from LMI, without effect: {no_effect}." if no_effect else ""),
        no_effect=no_effect,
    )


def _as_text(default: object) -> str:
    if default is None:
        return ""
    return default if isinstance(default, str) else json.dumps(default)


def _in_words(schema: Mapping[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(_in_words(choice) for choice in schema["anyOf"] if choice.get("type") != "null")
    if "enum" in schema:
        return "one of " + ", ".join(str(choice) for choice in schema["enum"])
    if "const" in schema:
        return str(schema["const"])
    bounds = [f"{words} {schema[bound]}" for bound, words in _BOUNDS.items() if bound in schema]
    return f"{_NOUNS[schema['type']]} {' and '.join(bounds)}".rstrip()


def _names(value: str) -> list[str]:
    """The names in a JSON array, or between commas and blanks."""
    if not value.startswith("["):
        return value.replace(",", " ").split()
    try:
        names = json.loads(value)
    except ValueError as error:
        raise ValueError(f"must be a JSON array: {error}") from None
    if not all(isinstance(name, str) for name in names):
        raise ValueError("must be a JSON array of texts")
    return list(names)


def _parsed(value: object) -> object:
    if isinstance(value, str):
        with suppress(ValueError):
            return json.loads(value)
    return value


JsonObject = Annotated[dict[str, Any], BeforeValidator(_parsed)]


class ServerProperties(Properties):
    """How the server treats a model, whichever engine runs it."""

    prefix = ""

    engine: Annotated[str, Names(environment=("OPTION_ENGINE",)), NoEffect(NO_MPI)] = Field(
        default="Python",
        description="How DJLServing would start the engine: Python, MPI, DeepSpeed and FasterTransformer are served in"
        " the same way here, and engines of other kinds of models are refused.",
    )
    job_queue_size: Annotated[PositiveInt, Names(environment=("MAX_CONCURRENT_REQUESTS",))] = Field(
        default=1000, description="Requests that may wait beside those that generate; one more is refused."
    )
    batch_size: Annotated[PositiveInt, Names(aliases=("max_dynamic_batch_size",))] = Field(
        default=1,
        description="Most requests in one dynamic batch; above 1 it means option.rolling_batch=disable where that is"
        " not given.",
    )
    max_batch_delay: NonNegativeInt = Field(
        default=100, description="Most milliseconds that a dynamic batch waits for further requests before it starts."
    )
    min_workers: Annotated[
        NonNegativeInt,
        Names(key="minWorkers", aliases=("min_workers", "minworkers"), environment=("SERVING_MIN_WORKERS",)),
    ] = Field(default=1, description="Processes that run the model's own `handle` function from the start; 0 means 1.")
    max_workers: Annotated[
        PositiveInt,
        Names(
            key="maxWorkers",
            aliases=("max_workers", "maxworkers"),
            environment=("SERVING_MAX_WORKERS", "SAGEMAKER_NUM_MODEL_WORKERS"),
        ),
    ] = Field(default=1, description="Most such processes; more are started when all are busy. At least minWorkers.")
    gpu_min_workers: Annotated[NonNegativeInt | None, Names(key="gpu.minWorkers")] = Field(
        default=None, description="In place of minWorkers on a host with GPUs."
    )
    gpu_max_workers: Annotated[PositiveInt | None, Names(key="gpu.maxWorkers")] = Field(
        default=None, description="In place of maxWorkers on a host with GPUs."
    )
    cpu_min_workers: Annotated[NonNegativeInt | None, Names(key="cpu.minWorkers")] = Field(
        default=None, description="In place of minWorkers on a host without GPUs."
    )
    cpu_max_workers: Annotated[PositiveInt | None, Names(key="cpu.maxWorkers")] = Field(
        default=None, description="In place of maxWorkers on a host without GPUs."
    )
    retry_threshold: NonNegativeInt = Field(
        default=10,
        description="Restarts in a row of a crashed engine or worker, after which it is given up; with the last "
        "model's the server ends, with exit status 1.",
    )
    max_idle_time: PositiveInt = Field(
        default=60, description="Seconds after which a process beyond minWorkers that has nothing to do is ended."
    )
    load_on_devices: Annotated[str | None, Names(aliases=("option.load_on_devices",)), NoEffect(ALL_DEVICES)] = None
    log_request_metric: bool = Field(
        default=False, description="Log with each request how many tokens it took and how long."
    )
    max_request_size: PositiveInt = Field(default=6553500, description="Most bytes in the body of a request.")
    throttle_error_http_code: Annotated[int, Field(ge=400, le=599)] = Field(
        default=503, description="HTTP status of the answer to a request that is refused because the queue is full."
    )
    open_management: bool = Field(
        default=False, description="Let other hosts manage the model's adapters too, not only the server's own."
    )
    allowed_hosts: str | None = Field(
        default=None,
        description="Names that clients and proxies call this server by, with commas between, each with its port or "
        "for every port: routes that change the server refuse others; *.example.com is every name below, * any.",
    )

    @property
    def host_patterns(self) -> frozenset[Host]:
        return frozenset(Host.parse_pattern(text) for text in _words(self.allowed_hosts))

    @field_validator("allowed_hosts")
    @classmethod
    def _hosts(cls, value: str | None) -> str | None:
        for text in _words(value):
            try:
                Host.parse_pattern(text)
            except ValueError:
                example = "models.example.com, 10.0.0.5:9000 or *.example.com"
                raise ValueError(f"must be names of hosts, such as {example}, without http:// and paths") from None
        return value

    @field_validator("engine")
    @classmethod
    def _of_python(cls, value: str) -> str:
        if value in OTHER_ENGINES:
            raise ValueError(
                f"must be one of {', '.join(PYTHON_ENGINES)}: the other engines of DJLServing run models of other"
                " kinds, which are not served here"
            )
        if value not in PYTHON_ENGINES:
            raise ValueError(f"must be one of {', '.join(PYTHON_ENGINES)}")
        return value

    def workers(self, gpus: int) -> tuple[int, int]:
        """Return the fewest and the most processes of a `handle` function, on a host with that many GPUs."""
        own_min, own_max = (
            (self.gpu_min_workers, self.gpu_max_workers) if gpus else (self.cpu_min_workers, self.cpu_max_workers)
        )
        fewest = max(1, self.min_workers if own_min is None else own_min)
        return fewest, max(fewest, self.max_workers if own_max is None else own_max)


def _streaming(value: object) -> object:
    """`huggingface` chose between two ways of streaming, of which there is one here."""
    return True if value == "huggingface" else value


class HandlerProperties(Properties):
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
        description="A Python file of the model directory (model.py when not given), or a built-in LMI handler; those "
        "are all served in the same way here, *_async_service as async_mode=true.",
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
    max_output_size: PositiveInt = Field(
        default=64 * 1024 * 1024, description="Most bytes that the model's own `handle` function answers with."
    )

    @property
    def dynamic_batching(self) -> bool:
        """Whether requests are gathered into static batches; LMI's async mode turns only its own scheduler off."""
        asynchronous = self.async_mode or (self.entry_point or "").endswith("_async_service")
        return self.rolling_batch == "disable" and not asynchronous

    @property
    def media_domains(self) -> frozenset[str]:
        """In lower case; vLLM's own form, a JSON array, is read too."""
        words = re.split(r"[\s,\[\]\"']+", self.allowed_media_domains or "")
        return frozenset(word.lower() for word in words if word)

    @property
    def reasoning_format(self) -> ReasoningFormat | None:
        """How chats' reasoning is marked; None where it is not told from the content."""
        if self.reasoning_parser is None or self.enable_reasoning is False:
            return None
        return find_reasoning_format(self.reasoning_parser)

    @property
    def served_model_names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(_names(self.served_model_name or "")))

    @property
    def script(self) -> str | None:
        """The Python file that `option.entryPoint` names."""
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


def _text_generation(task: str | None) -> str | None:
    if task is not None and task not in (TEXT_GENERATION, "generate", "auto"):
        raise ValueError(f"must be {TEXT_GENERATION}, the one task that is served here")
    return task


class ModelProperties(Properties):
    """The model that a backend loads; a backend adds its own keys in a subclass."""

    model_id: Annotated[str | None, Names(aliases=("s3url",), environment=("HF_MODEL_ID",))] = Field(
        default=None,
        description="A folder, an s3:// URL or a Hugging Face hub id with the weights; the model directory when not"
        " given.",
    )
    revision: Annotated[str | None, Names(environment=("HF_REVISION",))] = Field(
        default=None, description="Branch, tag or commit of the model on the hub."
    )
    trust_remote_code: Annotated[bool, Names(environment=("HF_MODEL_TRUST_REMOTE_CODE",))] = Field(
        default=False, description="Run Python code that comes with the weights."
    )
    max_rolling_batch_size: Annotated[PositiveInt, Names(environment=("MAX_BATCH_SIZE",))] = Field(
        default=32, description="Most requests that generate at the same time."
    )
    adapters: str = Field(default="adapters", description="The folder of LoRA adapters in the model directory.")
    task: Annotated[str | None, Names(environment=("HF_TASK",)), AfterValidator(_text_generation)] = Field(
        default=None, description="Only text-generation, which is what is served; another task is refused."
    )
