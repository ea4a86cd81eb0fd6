"""Bad texts in vLLM's engine: the processor itself, and what the engine writes with it."""

import pytest
import torch

from lmi_core.texts.bad_texts.text_ban import TextBan, TokenIndex
from tests.plugins.vllm_server import STORY, VllmServer

pytestmark = pytest.mark.timeout(300)

PIECES = [b"a", b"b", b"ab", b"c", b""]
END = 4


def allowed(texts: list[str], output_ids: list[int], logits: torch.Tensor, eos_token_id: int | None = END) -> list[int]:
    """The ids of the tokens that may come."""
    from lmi_plugins.vllm_engine.requests.bad_texts import RequestBan

    before = logits.clone()
    kept = RequestBan(TextBan(TokenIndex(PIECES), texts), eos_token_id)(output_ids, logits)
    assert torch.equal(logits, before)
    return kept.isfinite().nonzero()[:, 0].tolist()


def test_the_tokens_that_are_left() -> None:
    row = torch.zeros(len(PIECES))
    assert allowed(["ab"], [], row) == [0, 1, 3, 4]
    assert allowed(["ab"], [1, 0], row) == [0, 3, 4]
    assert allowed(["ab"], [0, 3], row) == [0, 1, 3, 4]


def test_the_end_is_left_where_nothing_else_is() -> None:
    """A guide that allows a token alone, which is bad."""
    guided = torch.full([len(PIECES)], -torch.inf)
    guided[1] = 3.0
    assert allowed(["b"], [], guided) == [END]
    assert allowed(["b"], [], guided, eos_token_id=None) == []
    assert allowed(["c"], [], guided) == [1]


def parts(text: str) -> list[str]:
    return [text[place : place + length] for place, length in ((2, 3), (11, 1), (17, 2), (30, 5), (41, 4))]


@pytest.mark.asyncio(loop_scope="session")
async def test_no_bad_text_is_written(vllm: VllmServer) -> None:
    """One that the tokenizer itself would split in another way than the model does, too."""
    free = (await vllm.ask(STORY, max_new_tokens=60))["generated_text"]
    bad = parts(free)
    assert all(free.count(each) for each in bad)
    asked = {"max_new_tokens": 60, "bad_sequences": bad}
    for sampling in ({}, {"do_sample": True, "temperature": 1.5, "n": 6, "seed": 3}):
        stream, answer = await vllm.beside_a_stream(vllm.ask(STORY, **asked, **sampling))
        texts = [answer["generated_text"]]
        texts += [each["generated_text"] for each in answer["details"].get("best_of_sequences") or ()]
        assert len(texts) == sampling.get("n", 1)
        assert not [each for each in bad for text in texts if each in text]
        assert stream[-1]["generated_text"] == free[: len(stream[-1]["generated_text"])], "no other's are bad"
    alone = await vllm.ask(STORY, **asked)
    assert alone["generated_text"] == (await vllm.ask(STORY, **asked))["generated_text"]


@pytest.mark.asyncio(loop_scope="session")
async def test_a_text_of_tokens_that_are_not_the_tokenizer_s(vllm: VllmServer) -> None:
    """vLLM's own `bad_words` lets it come: the model writes it letter by letter."""
    word = " time"
    letters = [token_id for letter in word for token_id in vllm.encode(letter)]
    assert len(letters) == len(word)
    written = await vllm.ask(STORY, max_new_tokens=5, guided_regex=word)
    assert written["generated_text"] == word
    for bad in (word, "im", "e"):
        error = await error_text(vllm, max_new_tokens=5, guided_regex=word, bad_sequences=[bad])
        assert "its parameters exclude all tokens that its grammar or schema allows" in error
    either = await vllm.ask(STORY, guided_choice=[" time", " tide"], bad_sequences=["tim"])
    assert either["generated_text"] == " tide"


async def error_text(vllm: VllmServer, **parameters: object) -> str:
    answer = await vllm.server.post("/invocations", {"inputs": STORY, "parameters": parameters})
    assert answer.status == 500, answer.body
    return str(answer.json()["error"])


@pytest.mark.asyncio(loop_scope="session")
async def test_what_vllm_itself_could_not_take(vllm: VllmServer) -> None:
    """A blank alone has no tokens without it, for which vLLM refuses it."""
    answer = await vllm.ask(STORY, bad_sequences=[" "], max_new_tokens=20)
    assert " " not in answer["generated_text"]
