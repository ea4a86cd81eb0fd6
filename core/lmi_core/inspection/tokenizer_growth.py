"""How much longer a tokenizer makes its texts: a few of its lines can make gigabytes of one character."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import tokenizers

LENGTH = 1000  # of the text that is thought of
MAX_GROWTH = 64  # of it, far beyond what tokenizers of models do
MAX_ADDED = 1000  # tokens around a text, and parts of the template that puts them there


def absurd_growth(tokenizer: "tokenizers.Tokenizer") -> Iterator[str]:
    """Yield what in a tokenizer makes far more of a text than it is."""
    for name, part in (("normalizer", tokenizer.normalizer), ("decoder", tokenizer.decoder)):
        if part is not None and _length(state_of(part), LENGTH) > MAX_GROWTH * LENGTH:
            yield f"its {name} makes texts more than {MAX_GROWTH} times as long"
    processor = tokenizer.post_processor
    parts = 0 if processor is None else _template_parts(state_of(processor))
    if max(parts, tokenizer.num_special_tokens_to_add(is_pair=False)) > MAX_ADDED:
        yield f"its post_processor adds more than {MAX_ADDED} tokens to each text"
    elif parts > MAX_GROWTH:
        yield f"its post_processor repeats each text more than {MAX_GROWTH} times"


def state_of(part: Any) -> dict[str, Any]:
    """Return what tokenizer.json says of one of a tokenizer's parts; its type is Custom where nothing does."""
    try:
        return dict(json.loads(part.__getstate__()))
    except Exception:  # as of a part in Python, which comes with code that the operator trusts
        return {"type": "Custom"}


def _length(step: dict[str, Any], length: int) -> int:
    """Return how long a step, or a sequence of steps, makes a text of this length at most."""
    for each in step.get("normalizers") or step.get("decoders") or ():
        length = min(_length(each, length), MAX_GROWTH * LENGTH + 1)
    if step["type"] == "Replace":
        shortest = len(step["pattern"].get("String", "")) or 1  # an expression may match each character
        return max(length, length * len(step["content"]) // shortest)
    return length + len(step.get("prepend", ""))


def _template_parts(step: dict[str, Any]) -> int:
    parts = [*(_template_parts(each) for each in step.get("processors", ())), len(step.get("single", ()))]
    return max(parts)
