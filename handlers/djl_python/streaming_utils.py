"""`StreamingUtils`, over transformers' own generation."""

import logging
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from lmi_core.generation.tokenizer import Detokenizer
from lmi_core.texts.huggingface_tokenizer import HuggingFaceTokenizer

__all__ = ["StreamingUtils"]

logger = logging.getLogger(__name__)

SAMPLING = ("temperature", "top_p", "top_k", "typical_p")
NOT_OF_GENERATE = ("engine", "details", "stream", "output_formatter", "return_full_text")
Texts = list[str]  # the new text of each prompt
Item = Texts | BaseException | None


class StreamingUtils:
    """Generators of text that a model function can add to the stream of its output."""

    DEFAULT_MAX_NEW_TOKENS: ClassVar[int] = 50
    BUILTIN_ENGINES: ClassVar[frozenset[str]] = frozenset({"Accelerate", "DeepSpeed", "transformers"})

    @staticmethod
    def get_stream_generator(execution_engine: str) -> Callable[..., Iterator[Texts]]:
        """Return `f(model, tokenizer, inputs, device=None, **parameters)`. Raise ValueError for an unknown engine."""
        if execution_engine not in StreamingUtils.BUILTIN_ENGINES:
            known = ", ".join(sorted(StreamingUtils.BUILTIN_ENGINES))
            raise ValueError(f"there is no stream generator for `{execution_engine}`. Known: {known}")
        return generated_texts

    @staticmethod
    def use_hf_default_streamer(
        model: Any, tokenizer: Any, inputs: str | list[str], device: Any = None, **kwargs: Any
    ) -> Iterator[Texts]:
        """Yield each prompt's new text per token, as `generated_texts` does."""
        return generated_texts(model, tokenizer, inputs, device, **kwargs)


def generated_texts(
    model: Any, tokenizer: Any, inputs: str | list[str], device: Any = None, **parameters: Any
) -> Iterator[Texts]:
    """Yield each prompt's new text per token, "" after its end; closing the iterator ends the generation."""
    prompts = [inputs] if isinstance(inputs, str) else list(inputs)
    if not prompts or not all(isinstance(prompt, str) for prompt in prompts):
        raise ValueError(f"`inputs` must be a string, or a list of strings. Given: {inputs!r}")
    arrived: queue.SimpleQueue[Item] = queue.SimpleQueue()
    ended = threading.Event()
    encoded = _encode(model, tokenizer, prompts, device)
    arguments = {**encoded, **_arguments(parameters, ended), "streamer": _Streamer(tokenizer, arrived)}
    threading.Thread(
        target=_generate, args=(model, arguments, _seed(parameters), arrived), name="stream-generator", daemon=True
    ).start()
    try:
        while (item := arrived.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        ended.set()


class _Streamer:
    """A streamer of transformers' `generate`, which receives the prompts, then a token of each sequence."""

    def __init__(self, tokenizer: Any, arrived: "queue.SimpleQueue[Item]") -> None:
        self._tokenizer = HuggingFaceTokenizer(tokenizer)
        self._ends = {tokenizer.eos_token_id}
        self._arrived = arrived
        self._detokenizers: list[Detokenizer] = []
        self._running: list[bool] = []

    def put(self, value: Any) -> None:
        if not self._detokenizers:
            rows = value.tolist()
            self._detokenizers = [self._tokenizer.detokenizer(row) for row in rows]
            self._running = [True] * len(rows)
            return
        self._arrived.put([self._text(index, token) for index, token in enumerate(value.reshape(-1).tolist())])

    def end(self) -> None:
        """Do nothing, because `_generate` itself signals the end."""

    def _text(self, index: int, token: int) -> str:
        if not self._running[index]:
            return ""
        self._running[index] = token not in self._ends
        return self._detokenizers[index].step(token)


def _generate(model: Any, arguments: dict[str, Any], seed: int | None, arrived: "queue.SimpleQueue[Item]") -> None:
    import torch

    try:
        if seed is not None:
            torch.manual_seed(seed)
        with torch.inference_mode():
            model.generate(**arguments)
    except BaseException as error:  # raised again where the texts are read
        arrived.put(error)
    else:
        arrived.put(None)


def _encode(model: Any, tokenizer: Any, prompts: list[str], device: Any) -> dict[str, Any]:
    if not tokenizer.pad_token:
        tokenizer.pad_token = tokenizer.eos_token
    encoded = tokenizer(prompts, padding=True, padding_side="left", return_tensors="pt")
    target = device if device is not None else getattr(model, "device", None)
    found = {"input_ids": encoded["input_ids"], "attention_mask": encoded["attention_mask"]}
    return {name: tensor.to(target) for name, tensor in found.items()} if target is not None else found


def _arguments(parameters: dict[str, Any], ended: threading.Event) -> dict[str, Any]:
    from transformers import StoppingCriteriaList

    def stopped(input_ids: Any, scores: Any, **_: Any) -> Any:
        import torch

        return torch.full((input_ids.shape[0],), ended.is_set(), dtype=torch.bool, device=input_ids.device)

    given = {name: value for name, value in parameters.items() if name not in (*NOT_OF_GENERATE, "manual_seed", "seed")}
    given.setdefault("max_new_tokens", StreamingUtils.DEFAULT_MAX_NEW_TOKENS)
    given.setdefault("do_sample", any(given.get(name) is not None for name in SAMPLING))
    given["stopping_criteria"] = StoppingCriteriaList([*(given.get("stopping_criteria") or ()), stopped])
    return given


def _seed(parameters: dict[str, Any]) -> int | None:
    seed = parameters.get("manual_seed", parameters.get("seed"))
    return None if seed is None else int(seed)
