"""vLLM's sampling keywords, with vLLM's defaults."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from lmi_core.engines.repetition import RepetitionDetection
from lmi_core.payloads.tolerant_payload import TolerantPayload
from lmi_handlers.fields.vocabulary import VLLM_NAMES, translate

NAMES = {**VLLM_NAMES, "stop": "stop_sequences", "truncate_prompt_tokens": "truncate"}


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


Texts = Annotated[list[str], BeforeValidator(_as_list, json_schema_input_type=str | list[str])]


class SamplingKeywords(TolerantPayload):
    """The sampling fields of happy_vllm's requests; the backend checks their bounds."""

    n: int = Field(1, description="The number of sequences to return.")
    best_of: int | None = Field(
        None, description="The number of sequences to generate, of which the n most likely are returned."
    )
    max_tokens: int = Field(16, description="The maximum number of tokens to generate.")
    min_tokens: int = Field(0, description="The minimum number of tokens to generate before the end-of-sequence token.")
    temperature: float = Field(
        1.0, description="Sampling temperature, which divides the logits; 0 means greedy decoding."
    )
    top_p: float = Field(1.0, description="Top-p sampling: the probability mass of the most likely tokens to keep.")
    top_k: int = Field(-1, description="Top-k sampling: the number of most likely tokens to keep; -1 means all.")
    min_p: float = Field(
        0.0, description="Drop tokens whose probability is below this fraction of the most likely token's."
    )
    seed: int | None = Field(
        None, description="Seed of the random choices: the same seed gives the same text; -1 means a random seed."
    )
    presence_penalty: float = Field(0.0, description="Above 0 makes tokens that were generated before less likely.")
    frequency_penalty: float = Field(0.0, description="Above 0 makes tokens less likely each time they are generated.")
    repetition_penalty: float = Field(1.0, description="Above 1 makes tokens that occurred before less likely.")
    logit_bias: dict[str, float] | None = Field(
        None, description="Map of token ids to the value added to their logits."
    )
    stop: Texts | None = Field(None, description="A string, or several, that end generation.")
    stop_token_ids: list[int] | None = Field(None, description="Token ids that end generation.")
    include_stop_str_in_output: bool = Field(False, description="Keep the stop sequence in the text.")
    bad_words: Texts | None = Field(None, description="Strings that must not be generated.")
    allowed_token_ids: list[int] | None = Field(None, description="Only these token ids may be generated.")
    ignore_eos: bool = Field(False, description="Continue generating after the end-of-sequence token.")
    use_beam_search: bool = Field(False, description="Use beam search with `best_of` beams.")
    length_penalty: float = Field(1.0, description="Beam search: a length penalty above 0 favours longer sequences.")
    early_stopping: bool = Field(False, description="Beam search: stop as soon as enough sequences are finished.")
    repetition_detection: RepetitionDetection | None = Field(
        None, description="Stop once a sequence of tokens has been repeated this often in a row."
    )
    logprobs: int | None = Field(None, description="Return this many most likely tokens at each position.")
    prompt_logprobs: int | None = Field(
        None, description="Return this many most likely tokens at each position of the prompt."
    )
    skip_special_tokens: bool = Field(True, description="Omit special tokens from the text.")
    spaces_between_special_tokens: bool = Field(True, description="Put spaces between special tokens in the text.")
    detokenize: Literal[True] = Field(True, description="Ignored: answers are always text.")
    truncate_prompt_tokens: int | None = Field(None, description="Truncate the prompt to its last tokens, this many.")

    def translated(self) -> tuple[dict[str, Any], dict[str, str]]:
        """Return LMI's parameters, without those that have no effect, and the client's name of each."""
        keywords = set(SamplingKeywords.model_fields) - {"use_beam_search"}
        given = self.model_dump(include=keywords, exclude_defaults=True)
        parameters, names = translate({"max_tokens": self.max_tokens} | given, NAMES)
        parameters["do_sample"] = not self.use_beam_search
        if self.use_beam_search:
            parameters["num_beams"] = parameters.pop("best_of", None) or self.n
            names["num_beams"] = "best_of"
        if self.prompt_logprobs is not None:
            parameters |= {"details": True, "decoder_input_details": True}
        return parameters, names
