"""The generation parameters of LMI's TensorRT-LLM backend, with LMI's names and defaults."""

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from lmi_core.generation.parameters import EngineParameters

INT32_MAX = 2**31 - 1  # the maximum in tensors
GREEDY_DEFAULTS: Mapping[str, Any] = {"temperature": 0.8, "top_k": 0, "top_p": 0.0}
SAMPLING_DEFAULTS: Mapping[str, Any] = {"temperature": 1.0, "top_k": 5, "top_p": 0.85}


class TrtllmParameters(EngineParameters):
    """Generation parameters for TensorRT-LLM, which samples wherever `top_k` or `top_p` is above 0."""

    do_sample: bool = Field(
        False,
        description="Selects the defaults of temperature, top_k and top_p; an explicit false means greedy decoding.",
    )
    temperature: float = Field(
        0.8,
        ge=0,
        le=100,
        description="Sampling temperature, which divides the logits; 0 means greedy decoding. With do_sample: 1.0.",
    )
    top_k: int = Field(
        0,
        ge=-1,
        le=INT32_MAX,
        description="Top-k sampling: the number of most likely tokens to keep; 0 means all. With do_sample: 5.",
    )
    top_p: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Top-p sampling: the probability mass of the most likely tokens to keep; 0 means all. With "
        "do_sample: 0.85.",
    )
    min_length: int = Field(
        1, ge=0, le=INT32_MAX, description="The minimum number of tokens to generate before the end-of-sequence token."
    )
    stop: bool = Field(False, description="Stop the requests with the same x-request-id instead of generating.")
    presence_penalty: float = Field(
        0.0, ge=-100, le=100, description="Values above 0 make tokens that were already generated less likely."
    )
    frequency_penalty: float = Field(
        0.0, ge=-100, le=100, description="Values above 0 make tokens less likely each time they are generated."
    )
    length_penalty: float = Field(
        0.0, ge=-10, le=10, description="Beam search: a length penalty above 0 favours longer sequences."
    )
    no_repeat_ngram_size: int = Field(
        0, ge=0, le=INT32_MAX, description="No sequence of this many tokens may occur twice; 0 disables it."
    )
    stop_token_ids: list[Annotated[int, Field(ge=0, le=INT32_MAX)]] | None = Field(
        None, max_length=64, description="Token ids that end generation."
    )

    @model_validator(mode="before")
    @classmethod
    def _defaults(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        return {**(SAMPLING_DEFAULTS if given.get("do_sample") is True else GREEDY_DEFAULTS), **given}

    @model_validator(mode="after")
    def _check_sequences(self) -> Self:
        if 1 < self.num_beams < self.n:
            raise ValueError(f"`n` must be at most `num_beams`, {self.num_beams}. Given: {self.n}")
        return self

    @property
    def samples(self) -> bool:
        refused = "do_sample" in self.model_fields_set and not self.do_sample
        return not refused and self.num_beams == 1 and (self.top_k > 0 or self.top_p > 0)
