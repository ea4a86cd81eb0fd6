import threading
from pathlib import Path
from typing import Any

import pytest

from djl_python.streaming_utils import StreamingUtils

HELLO = Path(__file__).parents[2] / "examples" / "hello"
QUESTION, ANSWER = "What is Deep Learning?", "Deep Learning is a really cool field."
NAME, MY_NAME = "What is your name?", "My name is Hello."


@pytest.fixture(scope="module")
def model() -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(HELLO)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(HELLO)


def test_texts_of_several_prompts(model: Any, tokenizer: Any) -> None:
    generate = StreamingUtils.get_stream_generator("Accelerate")
    steps = list(generate(model, tokenizer, [NAME, QUESTION], "cpu", max_new_tokens=30, details=True))
    assert ["".join(texts) for texts in zip(*steps, strict=True)] == [MY_NAME, ANSWER]
    assert steps[0] == ["My", "D"]
    assert steps[-1][0] == ""


def test_one_prompt_and_no_device(model: Any, tokenizer: Any) -> None:
    steps = StreamingUtils.use_hf_default_streamer(model, tokenizer, NAME, None, max_new_tokens=2)
    assert list(steps) == [["My"], [" name"]]


def test_most_tokens_are_fifty(model: Any, tokenizer: Any) -> None:
    generate = StreamingUtils.get_stream_generator("Accelerate")
    assert len(list(generate(model, tokenizer, [NAME], min_new_tokens=50))) == 50


def test_seed(model: Any, tokenizer: Any) -> None:
    generate = StreamingUtils.get_stream_generator("Accelerate")
    texts = [
        list(generate(model, tokenizer, [NAME], temperature=5.0, manual_seed=seed, max_new_tokens=12))
        for seed in (1, 1, 2)
    ]
    assert texts[0] == texts[1] != texts[2]


def test_errors_are_raised_where_texts_are_read(model: Any, tokenizer: Any) -> None:
    generate = StreamingUtils.get_stream_generator("Accelerate")
    with pytest.raises(ValueError, match="nonsense"):
        next(generate(model, tokenizer, [NAME], nonsense=1))
    with pytest.raises(ValueError, match=r"`inputs` must be a string, or a list of strings\. Given: \[\]"):
        next(generate(model, tokenizer, []))


def test_closing_ends_the_generation(model: Any, tokenizer: Any) -> None:
    passes: list[None] = []
    closed = threading.Event()

    def hold_the_second_pass(*_: object) -> None:
        passes.append(None)
        if len(passes) > 1:
            closed.wait()

    hook = model.register_forward_pre_hook(hold_the_second_pass)
    steps = StreamingUtils.get_stream_generator("Accelerate")(
        model, tokenizer, [NAME], min_new_tokens=100, max_new_tokens=100
    )
    next(steps)
    (generating,) = [thread for thread in threading.enumerate() if thread.name == "stream-generator"]
    steps.close()  # type: ignore[attr-defined]
    closed.set()
    generating.join()
    hook.remove()
    assert len(passes) == 2


def test_engines() -> None:
    generate = StreamingUtils.get_stream_generator("Accelerate")
    assert {StreamingUtils.get_stream_generator(name) for name in ("DeepSpeed", "transformers")} == {generate}
    with pytest.raises(ValueError, match=r"`transformers-neuronx`. Known: Accelerate, DeepSpeed, transformers"):
        StreamingUtils.get_stream_generator("transformers-neuronx")
