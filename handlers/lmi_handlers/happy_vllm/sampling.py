"""vLLM's sampling keywords, with vLLM's defaults."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from lmi_core.generation.extended_parameters import GUIDES
from lmi_core.payloads.tolerant_payload import TolerantPayload
from lmi_handlers.fields.parameter_fields import all_names, with_parameters
from lmi_handlers.fields.vocabulary import VLLM_NAMES, translate

# Parameters that vLLM's keywords lack, or have in another form.
LEFT_OUT = frozenset(
    {
        *("details", "return_full_text", "decoder_input_details", "do_sample", "num_beams", "top_n_tokens"),
        *("typical_p", "no_repeat_ngram_size", "logprob_token_ids", "cache_salt"),
        *(*GUIDES, "guided_reasoning", "reasoning_budget"),
    }
)
NAMES = all_names({**VLLM_NAMES, "stop": "stop_sequences", "truncate_prompt_tokens": "truncate"}, LEFT_OUT)


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


Texts = Annotated[list[str], BeforeValidator(_as_list, json_schema_input_type=str | list[str])]


@with_parameters(NAMES, nullable=False)
class SamplingKeywords(TolerantPayload):
    """The sampling fields of happy_vllm's requests; the backend checks their bounds."""

    n: int = Field(1, description="The number of sequences to return.")
    best_of: int | None = Field(
        None, description="The number of sequences to generate, of which the n most likely are returned."
    )
    max_tokens: int = Field(16, description="The maximum number of tokens to generate.")
    min_tokens: int = Field(0, description="The minimum number of tokens to generate before the end-of-sequence token.")
    top_k: int = Field(-1, description="Top-k sampling: the number of most likely tokens to keep; -1 means all.")
    stop: Texts | None = Field(None, description="A string, or several, that end generation.")
    bad_words: Texts | None = Field(None, description="Strings that must not be generated.")
    use_beam_search: bool = Field(False, description="Use beam search with `best_of` beams.")
    detokenize: Literal[True] = Field(True, description="Ignored: answers are always text.")

    def translated(self) -> tuple[dict[str, Any], dict[str, str]]:
        """Return LMI's parameters, without those that have no effect, and the client's name of each."""
        given = self.model_dump(include={*NAMES}, exclude_defaults=True)
        parameters, names = translate({"max_tokens": self.max_tokens} | given, NAMES)
        parameters["do_sample"] = not self.use_beam_search
        if self.use_beam_search:
            parameters["num_beams"] = parameters.pop("best_of", None) or self.n
            names["num_beams"] = "best_of"
        if "prompt_logprobs" in parameters:
            parameters |= {"details": True, "decoder_input_details": True}
        return parameters, names
