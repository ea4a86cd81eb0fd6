"""The request of happy_vllm's generating endpoints."""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, JsonValue, model_validator

from lmi_core.errors import InvalidPayload
from lmi_core.generation.parameters import GUIDES, as_list
from lmi_core.payloads.payload import quote
from lmi_core.payloads.tolerant_payload import TolerantPayload
from lmi_handlers.fields.guides import Guide, StructuredOutputs
from lmi_handlers.fields.parameter_fields import all_names, with_parameters
from lmi_handlers.fields.vocabulary import VLLM_NAMES, translate

# Parameters that vLLM's keywords do not include, or that have another form there.
LEFT_OUT = frozenset(
    {
        *("details", "return_full_text", "decoder_input_details", "do_sample", "num_beams", "top_n_tokens"),
        *("typical_p", "no_repeat_ngram_size", "logprob_token_ids", "cache_salt"),
        *(*GUIDES, "guided_reasoning", "reasoning_budget"),
    }
)
NAMES = all_names({**VLLM_NAMES, "stop": "stop_sequences", "truncate_prompt_tokens": "truncate"}, LEFT_OUT)
Texts = Annotated[list[str], BeforeValidator(as_list, json_schema_input_type=str | list[str])]
END_OF_SEQUENCE = 1  # tokens
SIMPLE_TYPES = ("string", "integer", "boolean", "number")
ADA = "Describe Ada Lovelace. Your answer should be in form of a json with the keywords name, surname, age, occupation."
OCCUPATION = (
    "What was the occupation of Ada Lovelace?"
    " Answer one of the following : 'mathematician', 'astronaut', 'show writer'."
)
POOL: list[JsonValue] = ["mathematician", "astronaut", "show writer"]
GREEDY = {"temperature": 0, "repetition_penalty": 1, "top_p": 0.8}
EXAMPLES: list[JsonValue] = [
    {"prompt": "Please describe Ada Lovelace to me.", **GREEDY, "max_tokens": 50},
    {"prompt": OCCUPATION, **GREEDY, "response_pool": POOL},
    {
        "prompt": ADA,
        **GREEDY,
        "max_tokens": 100,
        "json_format": {"name": "string", "surname": "string", "age": "integer", "occupation": "string"},
    },
]


@with_parameters(NAMES, nullable=False)
class SamplingKeywords(TolerantPayload):
    """The sampling fields of happy_vllm's requests; the backend checks their bounds."""

    n: int = Field(1, description="The number of sequences to return.")
    max_tokens: int = 16
    min_tokens: int = 0
    top_k: int = -1
    stop: Texts | None = None
    bad_words: Texts | None = None
    use_beam_search: bool = Field(False, description="Use beam search with `best_of` beams.")
    detokenize: Literal[True] = Field(True, description="Ignored: answers are always text.")

    def translated(self) -> tuple[dict[str, Any], dict[str, str]]:
        """Return LMI's effective parameters, and the client's name of each."""
        given = self.model_dump(include={*NAMES}, exclude_defaults=True)
        parameters, names = translate({"max_tokens": self.max_tokens} | given, NAMES)
        parameters["do_sample"] = not self.use_beam_search
        if self.use_beam_search:
            parameters["num_beams"] = parameters.pop("best_of", None) or self.n
            names["num_beams"] = "best_of"
        if "prompt_logprobs" in parameters:
            parameters |= {"details": True, "decoder_input_details": True}
        return parameters, names


class HappyVllmPayload(SamplingKeywords):
    model_config = ConfigDict(json_schema_extra={"examples": EXAMPLES})

    prompt: Annotated[str, Field(min_length=1)]
    model: str | None = Field(None, description="The name of the model; required if several are served.")
    prompt_in_response: bool = Field(False, description="Return the prompt in the answer.")
    response_pool: list[str] | None = Field(
        None, min_length=1, description="Constrain the output to one of these strings; not with `min_tokens`."
    )
    json_format: dict[str, Any] | None = Field(
        None,
        description="Constrain the output to JSON: a map of keys to types, in which a list of one type means an array; "
        "or a JSON schema.",
    )
    json_format_is_json_schema: bool = Field(False, description="Treat `json_format` as a JSON schema.")
    structured_outputs: StructuredOutputs | None = Field(None, description="Constraints on the output, in vLLM's form.")

    @model_validator(mode="after")
    def _one_guide(self) -> Self:
        if self.response_pool is not None and self.min_tokens > 0:
            raise ValueError("`response_pool` and `min_tokens` cannot be used together")
        own = {"response_pool": self.response_pool, "json_format": self.json_format}
        guides = [*(name for name, value in own.items() if value is not None), *(each.field for each in self._guides)]
        if len(guides) > 1:
            raise ValueError(f"`{guides[0]}` and `{guides[1]}` cannot be used together")
        for text in self.stop or () if self.response_pool is not None else ():
            if text and any(text in item for item in self.response_pool or ()):
                raise ValueError(f"`stop` must not contain a part of a string in `response_pool`. Given: {quote(text)}")
        return self

    def translated(self) -> tuple[dict[str, Any], dict[str, str]]:
        parameters, names = super().translated()
        names |= {"inputs": "prompt", "guided_choice": "response_pool", "guided_json": "json_format"}
        if self.response_pool is not None:
            parameters["guided_choice"] = self.response_pool
            longest = max(len(text.encode()) for text in self.response_pool)
            parameters["max_new_tokens"] = longest + END_OF_SEQUENCE  # a token has at least one byte
        if self.json_format is not None:
            schema = self.json_format if self.json_format_is_json_schema else simple_schema(self.json_format)
            parameters["guided_json"] = schema
        for guide in self._guides:
            parameters[guide.parameter], names[guide.parameter] = guide.value, guide.field
        return parameters, names

    @property
    def _guides(self) -> list[Guide]:
        """The members of `structured_outputs`; a request may have one."""
        guides = [] if self.structured_outputs is None else self.structured_outputs.guides()
        return [guide for guide in guides if guide.value is not None]


def simple_schema(json_format: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON schema that a `json_format` of keys and type names stands for."""
    return {
        "type": "object",
        "properties": {key: _simple_type(key, value) for key, value in json_format.items()},
        "required": list(json_format),
    }


def _simple_type(key: str, value: object) -> dict[str, Any]:
    if isinstance(value, str) and value in SIMPLE_TYPES:
        return {"type": value}
    if isinstance(value, list) and len(value) == 1 and value[0] in SIMPLE_TYPES:
        return {"type": "array", "items": {"type": value[0]}}
    raise InvalidPayload(
        f"`json_format.{key}` must be one of {', '.join(SIMPLE_TYPES)}, or a list of one of them. Given: {quote(value)}"
    )
