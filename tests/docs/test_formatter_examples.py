"""The code in docs/how_to/formatters.md, each block as the model.py of a model directory."""

import re

import pytest

from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve
from tests.docs.pages import page

PAGE = page("formatters.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", PAGE, re.DOTALL)
SAYING = SCRIPTED + "option.scripted_text=Deep Learning\n"
PROMPT = "What is Deep Learning?"


def name(block: tuple[str, str]) -> str:
    return str(re.findall(r"^(?:def|class) (\w+)", block[0], re.MULTILINE)[-1])


OUTPUTS = [block for block in BLOCKS if block[1]]
INPUTS = {name(block): block[0] for block in BLOCKS if not block[1]}


async def served(serve: Serve, model_dir: ModelDirectory, code: str) -> RunningServer:
    return await serve(model_dir({"serving.properties": SAYING, "model.py": code}))


@pytest.mark.parametrize("block", OUTPUTS, ids=map(name, OUTPUTS))
async def test_output_formatter(serve: Serve, model_dir: ModelDirectory, block: tuple[str, str]) -> None:
    code, expected = block
    server = await served(serve, model_dir, code)
    answer = await server.post("/invocations", {"inputs": PROMPT, "stream": True})
    first_id = min(int(number) for number in re.findall(r'"id":(\d+)', answer.body.decode()) or [0])
    text = re.sub(r'"id":(\d+)', lambda found: f'"id":{int(found[1]) - first_id}', answer.body.decode())
    assert text.rstrip("\n") == expected.rstrip("\n")


def test_every_contract_has_an_example() -> None:
    assert [name(block) for block in OUTPUTS] == [
        "shout",
        "report",
        "Numbered",
        "lines",
        "custom_output_formatter",
        "sign",
        "lower",
    ]
    assert sorted(INPUTS) == ["from_question", "from_text"]


@pytest.mark.parametrize(
    ("formatter", "data", "text"),
    [("from_question", b'{"question": "Why?"}', "Deep"), ("from_text", b"Why?", "Deep Learning")],
)
async def test_input_formatter(serve: Serve, model_dir: ModelDirectory, formatter: str, data: bytes, text: str) -> None:
    server = await served(serve, model_dir, INPUTS[formatter])
    answer = await server.post("/invocations", data=data, headers={"Content-Type": "application/json"})
    assert answer.json() == {"generated_text": text}
    assert server.scripted.history[0].prompt == "Why?"
