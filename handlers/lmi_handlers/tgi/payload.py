"""The requests of the routes of Text Generation Inference and Text Embeddings Inference."""

import secrets
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from lmi_core.generation.parameters import RANDOM_SEED
from lmi_core.payloads.tolerant_payload import ExactNumbers, TolerantPayload, drop_unknown_fields, take_known
from lmi_handlers.chat.generation import UP_TO_THE_CONTEXT
from lmi_handlers.fields.embedding_inputs import EmbeddingInputs
from lmi_handlers.fields.parameter_fields import with_parameters
from lmi_handlers.fields.tgi_grammar import TgiGrammar, use_grammar
from lmi_handlers.fields.vectors import CutSide
from lmi_handlers.fields.vocabulary import TGI_NAMES, sample_as_tgi, translate

SEED_BITS = 53  # of random seeds: JavaScript cannot represent larger integers exactly


# LMI's parameters that also exist in TGI.
PARAMETERS = (
    *("details", "decoder_input_details", "return_full_text", "top_n_tokens", "truncate", "seed", "temperature"),
    *("top_k", "top_p", "typical_p", "frequency_penalty", "repetition_penalty"),
)


@with_parameters({name: name for name in PARAMETERS} | TGI_NAMES)
class TgiParameters(ExactNumbers):
    """TGI's generation parameters; other properties are passed on as LMI's parameters."""

    model_config = ConfigDict(extra="allow", strict=True)

    adapter_id: str | None = Field(None, description="The adapter to generate with, like `adapters` in the body.")
    best_of: int | None = Field(
        None, description="The number of sequences to generate, of which the most likely is returned."
    )
    do_sample: bool | None = Field(None, description="Sample, even if no other sampling parameter is given.")
    grammar: TgiGrammar | None = Field(None, description="A constraint on the output.")
    max_new_tokens: int | None = Field(
        None, description="The maximum number of tokens to generate. Default: as many as fit in the context."
    )
    stop: str | list[str] | None = None
    watermark: bool | None = Field(None, description="Ignored: texts are not watermarked.")

    def translated(self) -> tuple[dict[str, Any], dict[str, str]]:
        """Return LMI's parameters, and the client's name of each."""
        given = self.model_dump(exclude_none=True, exclude={"adapter_id", "grammar"})
        given.setdefault("max_new_tokens", UP_TO_THE_CONTEXT)
        if given.get("decoder_input_details"):
            given["details"] = True
        parameters, names = translate(given, TGI_NAMES)
        if self.grammar is not None:
            use_grammar(self.grammar, parameters, names)
        sample_as_tgi(parameters)
        if (
            parameters.get("details")
            and parameters.get("do_sample")
            and parameters.get("seed", RANDOM_SEED) == RANDOM_SEED
        ):
            parameters["seed"] = secrets.randbits(SEED_BITS)  # so that the answer can contain it
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
    stream: bool | None = Field(None, description="Stream the answer token by token; only `/` supports both forms.")


class HostedApiOptions(TolerantPayload):
    """Options of Hugging Face's hosted Inference API, without effect on this server."""

    use_cache: bool | None = Field(None, description="Ignored: answers are not cached.")
    wait_for_model: bool | None = Field(None, description="Ignored.")
    use_gpu: bool | None = Field(None, description="Ignored.")


class TgiRootPayload(TgiPayload):
    """The body of `/`, the route for clients of the hosted Inference API."""

    options: HostedApiOptions | None = Field(
        None, description="Options of the hosted Inference API, which have no effect."
    )


class TeiPayload(EmbeddingInputs):
    """The request of Text Embeddings Inference for vectors."""

    normalize: bool = Field(True, description="Normalize vectors to length 1.")
    truncation_direction: CutSide = Field("right", description="The side to truncate.")


def take_payload(body: Mapping[str, Any], path: str, strict: bool) -> tuple[TgiPayload, tuple[str, ...]]:
    """Return the payload and the names of dropped fields, like `take_known`.

    Raise InvalidPayload if a field is invalid.
    """
    if path != "/":
        return take_known(body, TgiPayload, strict)
    ignored: tuple[str, ...] = ()
    if isinstance(options := body.get("options"), dict):
        kept, ignored = drop_unknown_fields(options, HostedApiOptions, strict)
        body = {**body, "options": kept}
    payload, unknown = take_known(body, TgiRootPayload, strict)
    return payload, unknown + ignored
