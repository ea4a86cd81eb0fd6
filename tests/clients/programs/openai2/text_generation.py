"""Text Generation Inference's own, older client."""

from huggingface_hub import InferenceClient
from text_generation import AsyncClient, Client
from text_generation.errors import ValidationError

from tests.clients.programs.cases import case, equal, fault, hello, raising
from tests.clients.programs.values import ANSWER, ANSWER_TOKENS, FIRST_TOKENS, MESSAGES, PROMPT_TOKENS, QUESTION

PACKAGE = "text-generation"


@case("TGI", "answers")
def generate() -> None:
    answer = Client(hello()).generate(QUESTION, max_new_tokens=64, decoder_input_details=True)
    details = answer.details
    equal((answer.generated_text, details.finish_reason.value), (ANSWER, "eos_token"))
    equal((details.generated_tokens, len(details.prefill)), (ANSWER_TOKENS, PROMPT_TOKENS))
    equal([token.text for token in details.tokens][:4], FIRST_TOKENS)


@case("TGI", "streams")
def generate_stream() -> None:
    *events, last = list(Client(hello()).generate_stream(QUESTION, max_new_tokens=64))
    texts = [event.token.text for event in (*events, last) if not event.token.special]
    equal(("".join(texts), last.generated_text), (ANSWER, ANSWER))
    equal((last.details.generated_tokens, last.details.finish_reason.value), (ANSWER_TOKENS, "eos_token"))


@case("TGI", "asyncio")
async def generate_asyncio() -> None:
    client = AsyncClient(hello())
    equal((await client.generate(QUESTION, max_new_tokens=64)).generated_text, ANSWER)
    events = [event async for event in client.generate_stream(QUESTION, max_new_tokens=64)]
    equal(events[-1].generated_text, ANSWER)


@case("TGI", "top tokens, and the best of several")
def details() -> None:
    answer = Client(hello()).generate(QUESTION, max_new_tokens=4, top_n_tokens=2)
    equal([place[0].text for place in answer.details.top_tokens], FIRST_TOKENS)
    answer = Client(hello()).generate(QUESTION, max_new_tokens=4, best_of=2, do_sample=True)
    equal(len(answer.details.best_of_sequences), 1)


@case("TGI", "errors")
def errors() -> None:
    with raising(ValidationError, "at most 2047 tokens"):
        Client(hello()).generate("word " * 3000, max_new_tokens=4)


@case("OpenAI chats", "answers")
def chat() -> None:
    answer = Client(hello()).chat(messages=MESSAGES, temperature=0.01, max_tokens=64)
    equal((answer.choices[0].message.content, answer.usage["completion_tokens"]), (ANSWER, ANSWER_TOKENS))


@fault(
    "OpenAI chats",
    "Streamed chats fail at the first delta without `role` and `tool_calls`, which OpenAI's API leaves out, and would "
    "at `[DONE]`.",
    "Stream chats with huggingface_hub, which took this client's place.",
)
def chat_stream() -> None:
    chunks = Client(hello()).chat(messages=MESSAGES, temperature=0.01, max_tokens=64, stream=True)
    with raising(AttributeError, "'status'"):
        list(chunks)
    asked = InferenceClient(base_url=hello(), token="any")
    answer = asked.chat_completion(MESSAGES, temperature=0.01, max_tokens=64, stream=True)
    equal("".join(chunk.choices[0].delta.content or "" for chunk in answer if chunk.choices), ANSWER)
