"""The requests of Ollama's generating routes."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, JsonValue

from lmi_core.errors import InvalidPayload
from lmi_core.payloads.tolerant_payload import TolerantPayload, drop_unknown_fields
from lmi_core.served_model import ServedModel
from lmi_handlers.chat.messages import MAX_ROLE, ToolCall
from lmi_handlers.fields.calls_schema import ANY_OBJECT
from lmi_handlers.fields.openai_tolerance import Refusal, Tolerance, take_fields, take_own
from lmi_handlers.fields.parameter_fields import with_parameters
from lmi_handlers.fields.passed import SEEDS
from lmi_handlers.fields.tool_fields import Tool
from lmi_handlers.fields.vocabulary import translate

NAMES = MappingProxyType(
    {
        "num_predict": "max_new_tokens",
        "repeat_penalty": "repetition_penalty",
        "stop": "stop_sequences",
        **{name: name for name in ("min_p", "typical_p", "presence_penalty", "frequency_penalty")},
    }
)
# Ollama's defaults.
DEFAULTS: Mapping[str, Any] = MappingProxyType({"temperature": 0.8, "top_k": 40, "top_p": 0.9})
RANDOM_SEED = -1
P = TypeVar("P", bound="OllamaRequest")
DURATION = re.compile(r"[-+]?(?:0|(?:(?:\d+(?:\.\d*)?|\.\d+)(?:ns|us|\u00b5s|\u03bcs|ms|s|m|h))+)", re.ASCII)
ZERO = re.compile(r"[^1-9]*")
GENERATE_EXAMPLE: dict[str, JsonValue] = {"prompt": "What is Deep Learning?", "options": {"num_predict": 64}}
CHAT_EXAMPLE: dict[str, JsonValue] = {"messages": [{"role": "user", "content": "What is Deep Learning?"}]}
# If true, reported as ignored, because it is not supported.
UNREAD = ("truncate", "shift")


@with_parameters(NAMES)
class OllamaOptions(TolerantPayload):
    """Ollama's sampling parameters; the backend checks the bounds that are not declared here."""

    num_predict: int | None = Field(
        None,
        ge=-2,
        description="The maximum number of tokens to generate; -1, -2 and 0 mean as many as fit. Default: -1.",
    )
    temperature: float | None = Field(None, description="Sampling temperature; 0 means greedy decoding. Default: 0.8.")
    top_k: int | None = Field(None, description="Sample from the k most likely tokens; 0 means all. Default: 40.")
    top_p: float | None = Field(None, description="Top-p sampling: the probability mass to keep. Default: 0.9.")
    seed: int | None = Field(
        None, description="Seed of the random choices: the same seed gives the same text; -1 means random. Default: -1."
    )
    stop: str | list[str] | None = Field(None, description="A string, or several, that end the generation.")

    def parameters(self) -> tuple[dict[str, Any], dict[str, str]]:
        """Return LMI's parameters, and the client's name of each."""
        given = {**DEFAULTS, **self.model_dump(exclude_none=True)}
        if given.get("num_predict", 0) <= 0:
            given.pop("num_predict", None)
        if "stop" in given:
            texts = [self.stop] if isinstance(self.stop, str) else self.stop or []
            given["stop"] = [text for text in texts if text] or None
        if (seed := given.get("seed")) is not None:
            given["seed"] = None if seed == RANDOM_SEED else seed % SEEDS
        parameters, spellings = translate(given, NAMES)
        parameters["do_sample"] = given["temperature"] > 0
        return parameters, {name: f"options.{spelling}" for name, spelling in spellings.items()}


def take_own_options(body: Mapping[str, Any], model: ServedModel) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Split the backend's own parameters from the body's `options`."""
    options = body.get("options")
    if not isinstance(options, dict):
        return body, {}
    rest, own = take_own(options, model, OllamaOptions)
    return {**body, "options": rest}, own


Effort = Literal["low", "medium", "high", "max"]
EFFORTS = get_args(Effort)
Think = bool | Effort | None


def _think(given: object) -> object:
    """Validate here: errors of a union would list each of its members."""
    if given is None or isinstance(given, bool) or given in EFFORTS:
        return given
    raise ValueError(f"must be true, false, or one of {', '.join(EFFORTS)}")


def _format(given: object) -> object:
    """Validate here: errors of a union would list each of its members."""
    if given in (None, "", "json") or isinstance(given, dict):
        return given
    raise ValueError('must be "json", or a JSON schema, which is an object')


def _keep_alive(given: float | str | None) -> float | str | None:
    if isinstance(given, str) and not DURATION.fullmatch(given):
        raise ValueError("must be a number of seconds, or a duration such as 5m or 1h30m")
    return given


KeepAlive = Annotated[float | str | None, AfterValidator(_keep_alive)]


TOLERANCE = Tolerance(
    hints=frozenset(),
    refused={
        "template": Refusal(
            "it is a program in Go's template language, and the model's own chat template is Jinja "
            "(option.chat_template); `raw` takes a prompt as it is",
            ("",),
        ),
        "context": Refusal("answers contain no context; use /api/chat for conversations", ([],)),
    },
)


class OllamaRequest(TolerantPayload):
    """The fields that both routes share."""

    model: str | None = Field(None, description="A model of `GET /api/tags`; may be omitted if only one is served.")
    stream: bool | None = Field(None, description="Stream the answer, one JSON object per line. Default: true.")
    format: Annotated[
        Literal["", "json"] | dict[str, Any] | None,
        BeforeValidator(_format, json_schema_input_type=Literal["", "json"] | dict[str, Any] | None),
    ] = Field(None, description="`json`, or the JSON schema that the answer must follow.")
    options: OllamaOptions | None = Field(None, description="The sampling parameters.")
    keep_alive: KeepAlive = Field(None, description="Ignored: the model always stays loaded.")
    think: Annotated[
        Think,
        BeforeValidator(_think, json_schema_input_type=Think),
    ] = Field(None, description="Whether to think first, and how much. Default: true for models that can.")
    logprobs: bool | None = Field(None, description="Return each token's log probability.")
    top_logprobs: int | None = Field(
        None, ge=0, le=20, description="With `logprobs`: the number of most likely tokens to return at each position."
    )
    truncate: bool | None = Field(None, description="Must be false: a prompt that is too long is an error.")
    shift: bool | None = Field(None, description="Must be false: the generation ends when the context is full.")

    @property
    def schema_of_format(self) -> dict[str, Any] | None:
        """The JSON schema that the answer must follow, if any."""
        return ANY_OBJECT if self.format == "json" else self.format or None

    @property
    def unloads(self) -> bool:
        """Whether a request without a prompt asks to unload the model."""
        given = self.keep_alive
        return bool(ZERO.fullmatch(given)) if isinstance(given, str) else given == 0


class OllamaGenerate(OllamaRequest):
    """A request for the answer to a prompt."""

    model_config = ConfigDict(json_schema_extra={"examples": [GENERATE_EXAMPLE]})

    prompt: str | None = Field(None, description="The prompt; may be empty to check the model.")
    suffix: str | None = Field(None, description="The text after the generated text (fill-in-the-middle).")
    system: str | None = Field(None, description="The system message before the prompt.")
    raw: bool | None = Field(None, description="Use the prompt as it is, without the chat template.")
    images: list[str] | None = Field(None, description="Images in base64, for models that support them.")


class OllamaMessage(BaseModel):
    """A message of a chat; members other than these are passed to the chat template unchanged."""

    model_config = ConfigDict(extra="allow", strict=True)

    role: Annotated[str, AfterValidator(str.lower)] = Field(
        min_length=1,
        max_length=MAX_ROLE,
        description="system, user, assistant, tool, or another role that the chat template writes.",
    )
    content: str | None = None
    thinking: str | None = Field(None, description="The assistant's reasoning before its content.")
    images: list[str] | None = Field(None, description="Images in base64.")
    tool_calls: list[ToolCall] | None = Field(None, description="The assistant's tool calls.")
    tool_name: str | None = Field(None, description="The function whose result a message with the role tool contains.")


class OllamaChat(OllamaRequest):
    """A request for the next message of a chat."""

    model_config = ConfigDict(json_schema_extra={"examples": [CHAT_EXAMPLE]})

    messages: list[OllamaMessage] | None = Field(
        None, description="The conversation so far. Without messages, the response reports that the model is loaded."
    )
    tools: list[Tool] | None = Field(None, description="The functions that the model may call.")


def take_payload(body: Mapping[str, Any], payload_type: type[P], strict: bool) -> tuple[P, tuple[str, ...]]:
    """Return the payload and the names of the ignored fields, including those in `options`.

    Raise InvalidPayload for an invalid field and, if strict, for an ignored one.
    """
    dropped: tuple[str, ...] = ()
    kept = dict(body)
    if isinstance(options := body.get("options"), dict):
        kept["options"], dropped = drop_unknown_fields(options, OllamaOptions, strict)
    payload, unknown = take_fields(kept, payload_type, strict, TOLERANCE)
    unread = tuple(name for name in UNREAD if getattr(payload, name))
    for name in unread if strict else ():
        raise InvalidPayload(f"`{name}` must be false: prompts are not cut. option.strict_parameters refuses it")
    alone = ("top_logprobs",) if payload.top_logprobs and not payload.logprobs else ()
    return payload, (*unread, *alone, *dropped, *unknown)
