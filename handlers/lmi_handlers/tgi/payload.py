"""The request of TGI's routes (Text Generation Inference)."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from lmi_core.payloads.tolerant_payload import TolerantPayload, drop_unknown_fields, take_known
from lmi_handlers.fields.vocabulary import sample_as_tgi, translate
from lmi_handlers.tgi.grammar import TgiGrammar, use_grammar

MAX_NEW_TOKENS = 100
NAMES = {"stop": "stop_sequences"}


class TgiParameters(BaseModel):
    """TGI's generation parameters; other properties are passed on as LMI's parameters."""

    model_config = ConfigDict(extra="allow", strict=True)

    adapter_id: str | None = Field(None, description="The adapter to generate with; so does `adapters` in the body.")
    best_of: int | None = Field(None, description="Sequences to generate, of which the likeliest is the answer.")
    decoder_input_details: bool | None = Field(None, description="Give `details.prefill`: the prompt's tokens.")
    details: bool | None = Field(None, description="Answer with `details`.")
    do_sample: bool | None = Field(None, description="Sample, also where no other parameter of sampling is given.")
    frequency_penalty: float | None = Field(None, description="Makes tokens less likely for each time that they came.")
    grammar: TgiGrammar | None = Field(None, description="What the answer must be.")
    max_new_tokens: int | None = Field(None, description=f"The most tokens to generate. Default: {MAX_NEW_TOKENS}.")
    repetition_penalty: float | None = Field(None, description="Above 1 makes tokens seen before less likely.")
    return_full_text: bool | None = Field(None, description="Put the prompt before the generated text.")
    seed: int | None = Field(None, description="The same seed gives the same text; -1 is random.")
    stop: str | list[str] | None = Field(None, description="A text that ends the generation, or several.")
    temperature: float | None = Field(None, description="Divides the logits before sampling.")
    top_k: int | None = Field(None, description="Sample from the k most likely tokens.")
    top_n_tokens: int | None = Field(None, description="Give this many likeliest tokens at each token.")
    top_p: float | None = Field(None, description="Sample from the tokens that make up this probability.")
    truncate: int | None = Field(None, description="Keep only this many of the prompt's last tokens.")
    typical_p: float | None = Field(None, description="Sample from the tokens of about the expected surprise.")
    watermark: Literal[False] | None = Field(None, description="Texts are not watermarked here.")

    def translated(self) -> tuple[dict[str, Any], dict[str, str]]:
        """Return LMI's parameters, and the client's name of each."""
        given = self.model_dump(exclude_none=True, exclude={"adapter_id", "grammar", "watermark"})
        given.setdefault("max_new_tokens", MAX_NEW_TOKENS)
        parameters, names = translate(given, NAMES)
        if self.grammar is not None:
            use_grammar(self.grammar, parameters, names)
        sample_as_tgi(parameters)
        return parameters, names


class TgiPayload(TolerantPayload):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"inputs": "What is Deep Learning?", "parameters": {"max_new_tokens": 20, "details": True}},
                {"inputs": "What is Deep Learning?", "parameters": {"temperature": 0.7, "seed": 7, "stop": ["."]}},
            ]
        },
    )

    inputs: Annotated[str, Field(min_length=1)] = Field(description="The prompt.")
    parameters: TgiParameters | None = Field(None, description="The generation parameters.")
    stream: bool | None = Field(None, description="Answer token by token; each route but `/` has only one form.")


class HostedApiOptions(TolerantPayload):
    """What clients of Hugging Face's hosted Inference API ask of it: nothing that this server could do otherwise."""

    use_cache: bool | None = Field(None, description="Nothing caches answers here: no value changes anything.")
    wait_for_model: bool | None = Field(None, description="Changes nothing.")
    use_gpu: bool | None = Field(None, description="Changes nothing.")


class TgiRootPayload(TgiPayload):
    """The body of `/`, the route that the clients of the hosted Inference API call."""

    options: HostedApiOptions | None = Field(
        None, description="Options of the hosted Inference API, taken without effect."
    )


def take_payload(body: Mapping[str, Any], path: str, strict: bool) -> tuple[TgiPayload, tuple[str, ...]]:
    """Return the payload, and the names of the fields that were dropped, as `take_known` does. Raise InvalidPayload."""
    if path != "/":
        return take_known(body, TgiPayload, strict)
    ignored: tuple[str, ...] = ()
    if isinstance(options := body.get("options"), dict):
        kept, ignored = drop_unknown_fields(options, HostedApiOptions, strict)
        body = {**body, "options": kept}
    payload, unknown = take_known(body, TgiRootPayload, strict)
    return payload, unknown + ignored
