"""The texts of the tokens of sequences."""

from lmi_core.generation.output import Token
from lmi_core.texts.huggingface_tokenizer import HuggingFaceTokenizer
from lmi_core.texts.token_stream import TokenStream
from lmi_core.texts.token_writer import TokenWriter
from lmi_plugins.torch_engine.messages.requests import SamplingParameters
from lmi_plugins.torch_engine.sequences.sequence import Sequence
from lmi_plugins.torch_engine.sequences.top_logprobs import TopLogprobs


class TokenTexts(TokenWriter):
    """The texts of the engine's tokens, in the form that requests require."""

    def __init__(self, tokenizer: HuggingFaceTokenizer, eos_token_ids: frozenset[int], vocabulary: int) -> None:
        super().__init__(tokenizer, eos_token_ids)
        self._vocabulary = vocabulary  # larger ids stand for a soft prompt, and have no text

    def stream(self, prompt_ids: list[int], parameters: SamplingParameters) -> TokenStream:
        """Return a stream for the tokens of one sequence that continues the prompt."""
        return self.sequence(
            [i for i in prompt_ids if i < self._vocabulary],
            stop_sequences=parameters.stop_sequences,
            stop_token_sequences=parameters.stop_token_sequences,
            include_stop=parameters.include_stop,
            skip_special_tokens=parameters.skip_special_tokens,
            spaces_between_special_tokens=parameters.spaces_between_special_tokens,
            show_end=parameters.ignore_end,
            markers=parameters.markers,
        )

    def prefill(self, sequence: Sequence) -> list[Token] | None:
        """Return the prompt's tokens for the first step, if requested."""
        if not sequence.parameters.prompt_log_probs:
            return None
        log_probs = [None, *sequence.prompt_log_probs]
        top_logprobs: list[TopLogprobs | None] = [None, *sequence.prompt_top_logprobs]
        top_logprobs += [None] * (len(log_probs) - len(top_logprobs))  # empty if none were requested
        return self.prompt(sequence.prompt_ids, log_probs, top_logprobs, [None, *sequence.prompt_ranks])
