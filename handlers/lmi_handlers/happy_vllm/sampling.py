"""vLLM's sampling keywords, with vLLM's defaults."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from lmi_core.payloads.tolerant_payload import TolerantPayload
from lmi_handlers.fields.vocabulary import translate

NAMES = {
    "max_tokens": "max_new_tokens",
    "min_tokens": "min_length",
    "stop": "stop_sequences",
    "bad_words": "bad_sequences",
    "ignore_eos": "ignore_eos_token",
    "truncate_prompt_tokens": "truncate",
}


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


Texts = Annotated[list[str], BeforeValidator(_as_list, json_schema_input_type=str | list[str])]


class SamplingKeywords(TolerantPayload):
    """The sampling fields of happy_vllm's requests; the backend checks their bounds."""

    n: int = Field(1, description="Sequences to answer with.")
    best_of: int | None = Field(None, description="Sequences to generate, of which the n likeliest are the answer.")
    max_tokens: int = Field(16, description="The most tokens to generate.")
    min_tokens: int = Field(0, description="The fewest tokens to generate before the end-of-sequence token.")
    temperature: float = Field(1.0, description="Divides the logits before sampling; 0 is greedy.")
    top_p: float = Field(1.0, description="Sample from the tokens that make up this probability.")
    top_k: int = Field(-1, description="Sample from the k most likely tokens; -1 means all.")
    min_p: float = Field(0.0, description="Leave out tokens less likely than this times the likeliest.")
    seed: int | None = Field(None, description="The same seed gives the same text; -1 is random.")
    presence_penalty: float = Field(0.0, description="Makes tokens less likely that were generated.")
    frequency_penalty: float = Field(0.0, description="Makes tokens less likely each time that they were generated.")
    repetition_penalty: float = Field(1.0, description="Above 1 makes tokens seen before less likely.")
    logit_bias: dict[str, float] | None = Field(None, description="Token id to what is added to its logit.")
    stop: Texts | None = Field(None, description="A text that ends the generation, or several.")
    stop_token_ids: list[int] | None = Field(None, description="Token ids that end the generation.")
    include_stop_str_in_output: bool = Field(False, description="Keep the stop sequence in the text.")
    bad_words: Texts | None = Field(None, description="Texts that never come.")
    ignore_eos: bool = Field(False, description="Go on after the end-of-sequence token.")
    use_beam_search: bool = Field(False, description="Beam search, of `best_of` beams.")
    length_penalty: float = Field(1.0, description="Beam search: above 0 favours longer sequences.")
    early_stopping: bool = Field(False, description="Beam search: stop once there are enough finished sequences.")
    logprobs: int | None = Field(None, description="Answer with this many likeliest tokens at each token.")
    prompt_logprobs: int | None = Field(None, description="As `logprobs`, for the tokens of the prompt.")
    skip_special_tokens: bool = Field(True, description="Leave special tokens out of the text.")
    spaces_between_special_tokens: bool = Field(True, description="Put blanks between special tokens in the text.")
    detokenize: Literal[True] = Field(True, description="Answers are text.")
    truncate_prompt_tokens: int | None = Field(None, description="Keep only this many of the prompt's last tokens.")

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
