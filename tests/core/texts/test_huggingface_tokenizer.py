import gc
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import orjson
import psutil
import pytest
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import ByT5Tokenizer, PreTrainedTokenizerFast

from lmi_core.errors import ConfigurationError, GenerationFailed, InvalidParameter, InvalidPayload
from lmi_core.forks import forked_function
from lmi_core.forks.forked_function import CallEndedError, origin
from lmi_core.generation.chat import Chat
from lmi_core.generation.tokenizer import Detokenizer
from lmi_core.inspection.chat_template_check import wrong_template
from lmi_core.texts import huggingface_tokenizer
from lmi_core.texts.chat_template import _FORKED
from lmi_core.texts.detokenizers import MAX_PENDING, FastDetokenizer
from lmi_core.texts.huggingface_tokenizer import APART, HuggingFaceTokenizer

TEXT = "Grüße aus 東京, the quick brown fox. 👩\u200d👩\u200d👧 ½ naïve façade — «да»\n\tend"


def train(add_prefix_space: bool = False) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<s>", "</s>"]
    trainer = trainers.BpeTrainer(
        vocab_size=280, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(["the quick brown fox"], trainer)
    return tokenizer


def metaspace() -> Tokenizer:
    """Writes a blank before a word as part of it, and drops it at the start of a text: as Llama's and T5's do."""
    pieces = ["<unk>", "</s>", "▁Hello", "▁world", "!", "▁", "wide"] + [f"<0x{byte:02X}>" for byte in range(256)]
    vocabulary = {piece: place for place, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>", byte_fallback=True))
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return tokenizer


def wrap(tokenizer: Tokenizer) -> HuggingFaceTokenizer:
    pretrained: Any = PreTrainedTokenizerFast  # not typed
    return HuggingFaceTokenizer(pretrained(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>"))


def slow() -> HuggingFaceTokenizer:
    pretrained: Any = ByT5Tokenizer  # not typed; every byte is a token
    return HuggingFaceTokenizer(pretrained())


def texts(detokenizer: Detokenizer, ids: list[int]) -> list[str]:
    return [detokenizer.step(token_id) for token_id in ids]


@pytest.fixture(scope="module", params=["fast", "slow"])
def tokenizer(request: pytest.FixtureRequest) -> HuggingFaceTokenizer:
    return wrap(train()) if request.param == "fast" else slow()


def encode(tokenizer: HuggingFaceTokenizer, text: str) -> list[int]:
    return [token_id for token_id in tokenizer.encode(text) if token_id not in tokenizer.special_ids]


class Reversed(PreTrainedTokenizerFast):
    def encode(self, text: str, **options: Any) -> list[int]:
        return list(reversed(super().encode(text, **options)))


@pytest.mark.parametrize("add_special_tokens", [True, False])
@pytest.mark.parametrize("case", ["plain", "truncates", "pads", "splits special tokens", "encodes by itself"])
def test_encodes_as_transformers_does(case: str, add_special_tokens: bool) -> None:
    backend = train()
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    if case == "truncates":
        backend.enable_truncation(3)
    if case == "pads":
        backend.enable_padding(length=50)
    pretrained_type: Any = Reversed if case == "encodes by itself" else PreTrainedTokenizerFast
    pretrained = pretrained_type(
        tokenizer_object=backend,
        bos_token="<s>",
        eos_token="</s>",
        split_special_tokens=case == "splits special tokens",
    )
    for times in (1, 1000):  # long texts are encoded in another way
        text = "the quick</s> fox" * times
        ids = HuggingFaceTokenizer(pretrained).encode(text, add_special_tokens)
        assert ids == pretrained.encode(text, add_special_tokens=add_special_tokens)
    assert (pretrained.bos_token_id in ids) is add_special_tokens
    assert (pretrained.eos_token_id in ids) is (case != "splits special tokens")


def test_nothing_is_left_of_a_tokenizer_that_the_garbage_collector_does_not_see() -> None:
    us = psutil.Process()
    children = set(psutil.Process(origin().process_id).children())
    gc.collect()
    gc.disable()
    try:
        tokenizer = wrap(train())
        descriptors = us.num_fds()
        assert len(tokenizer.encode("x" * (APART + 1))) > APART
        (process,) = set(psutil.Process(origin().process_id).children()) - children
        assert us.num_fds() > descriptors
        del tokenizer
        assert us.num_fds() == descriptors
        process.wait(60)
    finally:
        gc.enable()


@pytest.mark.parametrize(
    "options", [{"truncation": True, "max_length": 2}, {"padding": "max_length", "max_length": 50}]
)
def test_encodes_whole_texts_whatever_others_asked_of_the_tokenizer(options: dict[str, Any]) -> None:
    tokenizer = wrap(train())
    tokenizer.pretrained.add_special_tokens({"pad_token": "</s>"})
    ids = tokenizer.encode(TEXT)
    tokenizer.pretrained(TEXT, **options)
    assert tokenizer.encode(TEXT) == ids


def test_writes_whole_characters_only(tokenizer: HuggingFaceTokenizer) -> None:
    ids = encode(tokenizer, TEXT)
    assert len(ids) > len(TEXT)
    written = texts(tokenizer.detokenizer([]), ids)
    assert "".join(written) == TEXT
    assert "\ufffd" not in "".join(written)


def test_goes_on_from_a_prompt(tokenizer: HuggingFaceTokenizer) -> None:
    prompt, rest = encode(tokenizer, TEXT[:20]), encode(tokenizer, TEXT[20:])
    assert "".join(texts(tokenizer.detokenizer(prompt), rest)) == TEXT[20:]


def test_special_tokens_have_no_text(tokenizer: HuggingFaceTokenizer) -> None:
    end_id = tokenizer.pretrained.eos_token_id
    assert end_id in tokenizer.special_ids
    hello = encode(tokenizer, "hello")
    assert "".join(texts(tokenizer.detokenizer([]), [*hello, end_id, *hello])) == "hellohello"


def test_a_character_left_incomplete_is_not_written(tokenizer: HuggingFaceTokenizer) -> None:
    ids = encode(tokenizer, "a東")
    assert texts(tokenizer.detokenizer([]), ids[:-1]) == ["a"] + [""] * (len(ids) - 2)


def test_the_first_word_keeps_the_blank_before_it() -> None:
    tokenizer = wrap(metaspace())
    assert texts(tokenizer.detokenizer([2]), [3, 4]) == [" world", "!"]
    assert texts(tokenizer.detokenizer([]), [3, 4]) == ["world", "!"]


def test_characters_written_as_bytes() -> None:
    tokenizer = wrap(metaspace())
    ids = [7 + byte for byte in "é東".encode()]
    assert texts(tokenizer.detokenizer([2]), ids) == ["", "é", "", "", "東"]


@pytest.mark.parametrize("vocabulary", ["byte level", "bytes of a fallback"])
@pytest.mark.parametrize(
    ("prompt", "generated"),
    [
        ("the \ufffd", " world!"),  # looks like an incomplete character, as decoders write those
        ("\ufffd\ufffd\ufffd\ufffd", " world"),
        ("สวัสดีสวัสดี", " world"),  # so does a prompt of bytes, in the middle of a character
        ("สวัสดีสวัสดี", "ครับ!"),
    ],
)
def test_the_answer_has_no_text_of_the_prompt(vocabulary: str, prompt: str, generated: str) -> None:
    tokenizer = wrap(train() if vocabulary == "byte level" else metaspace())
    ids = token_ids(tokenizer, prompt)
    assert "".join(texts(tokenizer.detokenizer(ids), token_ids(tokenizer, generated))) == generated


@pytest.mark.parametrize("vocabulary", ["byte level", "bytes of a fallback"])
def test_completes_the_character_that_the_prompt_began(vocabulary: str) -> None:
    tokenizer = wrap(train() if vocabulary == "byte level" else metaspace())
    ids = token_ids(tokenizer, "a \ufffd東") + token_ids(tokenizer, "!")
    for cut in (2, 3):  # in the middle of 東
        assert "".join(texts(tokenizer.detokenizer(ids[:-cut]), ids[-cut:])) == "東!"


def token_ids(tokenizer: HuggingFaceTokenizer, text: str) -> list[int]:
    """Encode a text as the middle of another."""
    if tokenizer.pretrained.convert_tokens_to_ids("wide") is None:
        return encode(tokenizer, text)
    pieces = {" world": [3], " world!": [3, 4]}
    return pieces.get(text) or [7 + byte for byte in text.encode()]


@pytest.mark.parametrize("vocabulary", ["byte level", "bytes of a fallback"])
@pytest.mark.parametrize(
    "text",
    [
        "\ufffd" * 99,
        "\ufffd" * 99 + " world",
        "東" + "\ufffd" * 50 + "東!",
        "".join("\ufffd" * count + "😀" for count in range(50)) + "!",  # which is cut at every place
    ],
)
def test_long_runs_that_look_incomplete_are_written_before_they_end(vocabulary: str, text: str) -> None:
    tokenizer = wrap(train() if vocabulary == "byte level" else metaspace())
    ids = [token_id for part in text.partition(" world") if part for token_id in token_ids(tokenizer, part)]
    detokenizer = tokenizer.detokenizer([])
    written = texts(detokenizer, ids)
    assert text.startswith("".join(written))
    assert len(text) - len("".join(written)) <= MAX_PENDING
    if not text.endswith("\ufffd"):
        assert "".join(written) == text
    lengths = [len(list(run)) for without, run in groupby(written, key=lambda part: part == "") if without]
    assert max(lengths) < MAX_PENDING


def test_bytes_that_are_no_text_keep_the_word_after_them() -> None:
    broken = [7 + byte for byte in b"x\xa6x"]  # the first is text by itself, and was sent when the others come
    assert texts(wrap(metaspace()).detokenizer([2]), [*broken, 3, 3]) == ["x", "", "", "\ufffd\ufffd world", " world"]


def test_goes_on_when_the_text_before_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def step(self, tokenizer: Tokenizer, token_id: int) -> str:
            raise Exception("Invalid prefix encountered while decoding stream.")

    detokenizer = FastDetokenizer(train(), [])
    monkeypatch.setattr(detokenizer, "_stream", Broken())
    tokenizer = train()
    assert "".join(texts(detokenizer, tokenizer.encode("the end").ids)) == "the end"


def test_encodes_with_the_special_tokens_that_the_model_expects() -> None:
    assert slow().encode("a") == [ord("a") + 3, 1]


def test_loads_from_a_directory(tmp_path: Path) -> None:
    wrap(train()).pretrained.save_pretrained(tmp_path)
    loaded = HuggingFaceTokenizer.load(str(tmp_path))
    assert "".join(texts(loaded.detokenizer([]), loaded.encode(TEXT))) == TEXT


def test_a_directory_without_a_tokenizer_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"there is no tokenizer: neither tokenizer") as caught:
        HuggingFaceTokenizer.load(str(tmp_path))
    assert str(tmp_path) in caught.value.message
    assert "\n" not in caught.value.message


def test_importing_the_module_does_not_import_transformers() -> None:
    code = "import sys, lmi_core.texts.huggingface_tokenizer; sys.exit('transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("make", [train, metaspace])
def test_bytes_of_tokens_are_those_of_the_text(make: Callable[[], Tokenizer]) -> None:
    tokenizer = wrap(make())
    ids = tokenizer.encode("Hello ü東", add_special_tokens=False)
    data = [tokenizer.token_bytes(token_id) for token_id in ids]
    assert b"".join(data).replace(b"<unk>", b"").decode() == "Hello ü東"
    assert max(len(each.decode(errors="ignore").encode()) < len(each) for each in data)


def test_several_load_at_once_in_a_new_process(tmp_path: Path) -> None:
    wrap(train()).pretrained.save_pretrained(tmp_path)
    code = (
        "import sys\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "from lmi_core.texts.huggingface_tokenizer import HuggingFaceTokenizer\n"
        "with ThreadPoolExecutor(8) as threads:\n"
        "    print(len(list(threads.map(HuggingFaceTokenizer.load, sys.argv[1:] * 8))))\n"
    )
    result = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, timeout=100)
    assert result.stdout == "8\n", result.stderr


def test_vocabulary_size() -> None:
    tokenizer = wrap(train())
    assert max(tokenizer.encode(TEXT)) < tokenizer.vocabulary_size == len(tokenizer.pretrained.get_vocab())


TEMPLATE = "{% for message in messages %}<{{ message.role }}>{{ message.content }}{% endfor %}"
CHAT = Chat([{"role": "user", "content": "Hi"}])


def test_chat_template_of_the_model() -> None:
    tokenizer = wrap(train())
    assert tokenizer.chat_template(with_tools=False) is None
    tokenizer.pretrained.chat_template = TEMPLATE
    assert tokenizer.chat_template(with_tools=True) == TEMPLATE


def test_chat_template_of_its_own_for_tools() -> None:
    tokenizer = wrap(train())
    tokenizer.pretrained.chat_template = {"default": "a", "tool_use": "b"}
    assert (tokenizer.chat_template(with_tools=False), tokenizer.chat_template(with_tools=True)) == ("a", "b")


def test_render_chat() -> None:
    tokenizer = wrap(train())
    assert tokenizer.render_chat(CHAT, TEMPLATE + "{% if add_generation_prompt %}<assistant>{% endif %}") == (
        "<user>Hi<assistant>"
    )
    tools = [{"type": "function", "function": {"name": "f"}}]
    assert (
        tokenizer.render_chat(Chat(CHAT.messages, tools, {"mood": "kind"}), "{{ tools[0].function.name }} {{ mood }}")
        == "f kind"
    )


@pytest.mark.parametrize(
    "template",
    ["{{ raise_exception('one at a time') }}", "{{ messages.missing.content }}", "{% if %}", "{{ 1 + 'a' }}"],
)
def test_template_that_refuses_the_chat(template: str) -> None:
    with pytest.raises(InvalidPayload, match=r"^the messages are refused by the chat template: "):
        wrap(train()).render_chat(CHAT, template)


def test_the_end_of_a_templates_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def end(*_: object) -> str:
        raise CallEndedError(-signal.SIGSEGV)

    monkeypatch.setattr(huggingface_tokenizer, "render", end)
    assert list(wrong_template("it", "", wrap(train()))) == [
        "it cannot be used: for one short message its process ended with signal 11"
    ]


def test_processes_that_cannot_be_started_are_the_servers_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise BlockingIOError("Resource temporarily unavailable")

    monkeypatch.setattr(forked_function, "origin", fail)
    monkeypatch.setattr(_FORKED, "_process", None)
    tokenizer = wrap(train())
    with pytest.raises(GenerationFailed, match="could not be started"):
        tokenizer.encode("x" * (APART + 1))
    with pytest.raises(GenerationFailed, match="could not be started"):
        tokenizer.render_chat(replace(CHAT, template_of_client=True), TEMPLATE)


@pytest.mark.parametrize(
    "text", ["", "a", "the quick brown fox " * 9, "the quick", "\u00e9\u6f22" * 20, " " * 50, "</s>" * 7]
)
def test_a_text_has_at_least_as_many_tokens_as_found_without_tokenizing_it(text: str) -> None:
    tokenizer = wrap(train())
    assert tokenizer.min_tokens(text) <= len(tokenizer.encode(text, add_special_tokens=False))
    assert tokenizer.min_tokens("x" * 100_000) > 1000


def test_tokenizers_that_leave_out_characters_tell_no_number() -> None:
    normalizing, truncating = train(), train()
    normalizing.normalizer = normalizers.Strip()
    truncating.enable_truncation(3)
    for tokenizer in (wrap(normalizing), wrap(truncating), wrap(metaspace()), slow()):
        assert tokenizer.min_tokens("x" * 100_000) == 0


def test_a_text_that_the_tokenizer_cannot_read() -> None:
    """Rust panics where an expression of the tokenizer takes too many steps."""
    backend = train()
    split = pre_tokenizers.Split(Regex(r"^(([a-z])+.)+[A-Z]([a-z])+$"), "isolated")
    backend.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel()])
    pretrained: Any = PreTrainedTokenizerFast
    tokenizer = HuggingFaceTokenizer(pretrained(tokenizer_object=backend))
    with pytest.raises(InvalidParameter, match=r"the model's tokenizer cannot read the text: .*limit"):
        tokenizer.encode("x" * 2000)
    assert tokenizer.encode("the quick brown fox")


HELLO = Path(__file__).parents[3] / "examples" / "hello"


@pytest.mark.torch
def test_what_the_file_says() -> None:
    found = HuggingFaceTokenizer.load(str(HELLO)).configuration()
    written = json.loads((HELLO / "tokenizer_config.json").read_text(encoding="utf-8"))
    assert {name: found[name] for name in written} == written
    assert found["added_tokens_decoder"]["1"] == "<|end|>"
    assert str(HELLO) not in orjson.dumps(found).decode(), "where the files lie is not told"
