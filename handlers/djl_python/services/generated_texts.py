"""Generated texts for a model function's prompts."""

from collections.abc import Iterator, Sequence

from djl_python.services.model_engine import ModelEngine
from lmi_core.generation.request import ValidRequest


def texts_after_prompts(engine: ModelEngine, requests: Sequence[ValidRequest]) -> list[str]:
    """Return the text generated for each prompt, after the prompt unless `return_full_text` is false."""
    if not requests:
        return []
    output = engine.whole(requests)
    texts = []
    for index, request in enumerate(requests):
        (best,) = output.best_sequences(1, index)
        parameters = request.parameters
        whole = parameters.return_full_text or "return_full_text" not in parameters.model_fields_set
        texts.append(request.prompt + best.text if whole else best.text)
    return texts


def text_steps(engine: ModelEngine, requests: Sequence[ValidRequest]) -> Iterator[list[str]]:
    """Yield each prompt's new text in each step of the batch; "" after its end."""
    running = set(range(len(requests)))
    gained: dict[int, str] = {}
    for step in engine.steps(requests):
        if step.prompt_index in gained:
            yield [gained.get(index, "") for index in range(len(requests))]
            gained.clear()
        gained[step.prompt_index] = "".join([token.text for token in step.tokens])
        if step.finish_reason is not None:
            running.discard(step.prompt_index)
        if not running - gained.keys():
            yield [gained.get(index, "") for index in range(len(requests))]
            gained.clear()
