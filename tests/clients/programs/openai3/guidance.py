"""guidance's model of OpenAI's chats, which streams."""

from typing import Any

from guidance import assistant, gen, json, user
from guidance.models import OpenAI

from tests.clients.programs.cases import case, equal, hello, saying
from tests.clients.programs.paint import PAINT, Paint
from tests.clients.programs.values import ANSWER, HELLO, QUESTION, SAYING, THINK_QUESTION

PACKAGE = "guidance"


def answer(model: str, url: str, question: str, grammar: Any) -> Any:
    asked = OpenAI(model, base_url=f"{url}/v1", api_key="any", echo=False)
    with user():
        asked += question
    with assistant():
        asked += grammar
    return asked["answer"]


@case("OpenAI chats", "answers")
def answers() -> None:
    equal(answer(HELLO, hello(), QUESTION, gen("answer", temperature=0, max_tokens=64)), ANSWER)
    equal(answer(SAYING, saying(), THINK_QUESTION, gen("answer")), ANSWER)


@case("OpenAI chats", "structured outputs")
def structured() -> None:
    grammar = json("answer", schema=Paint, temperature=0, max_tokens=200)
    equal(Paint.model_validate_json(answer(HELLO, hello(), QUESTION, grammar)), PAINT)
