"""vLLM's sampling keywords, with vLLM's defaults."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from lmi_core.generation.parameters import GUIDES, as_list
from lmi_core.payloads.tolerant_payload import TolerantPayload
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
