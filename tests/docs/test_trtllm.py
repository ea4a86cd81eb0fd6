"""Examples of docs/reference/trtllm.md, run unchanged except for addresses and paths."""

import asyncio
import json
import re
import shlex

import pytest

from lmi_core.generation.parameters import GenerationParameters
from lmi_core.generation.tensors import TensorSpecification
from lmi_plugins.trtllm.parameters import TrtllmParameters
from lmi_plugins.trtllm.requests.tensor_table import INPUTS, OUTPUTS, shape_in_words, shapes_of, types_of
from tests.conftest import Serve
from tests.docs.pages import ROOT, page

PAGE = page("trtllm.md").read_text()
ADDRESS = "127.0.0.1:8080"
ANSWER = "Deep Learning is a really cool field."
(LMI, STREAM) = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
(CLIENT, MANAGER) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def code_block(language: str) -> str:
    (block,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert isinstance(block, str)
    return block


def payload(command: str) -> tuple[str, bytes]:
    """The path and the body of a call of curl's."""
    _, url, _, body = shlex.split(command.replace("\\\n", ""))
    return url.removeprefix(f"http://{ADDRESS}"), body.encode()


def runnable(code: str, port: int = 0) -> str:
    assert '"examples/hello"' in code
    return code.replace('"examples/hello"', repr(str(ROOT / "examples" / "hello"))).replace(
        ADDRESS, f"127.0.0.1:{port}"
    )


async def test_the_same_request_in_every_way(serve: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    server = await serve(ROOT / "examples" / "trtllm")
    path, body = payload(LMI)
    assert (await server.post(path, data=body)).json() == json.loads(code_block("json")) == {"generated_text": ANSWER}
    path, body = payload(STREAM)
    stream = await server.post(path, data=body)
    assert stream.body.decode().strip() == code_block("text").strip()
    await asyncio.to_thread(exec, runnable(CLIENT, server.server.port), {})
    assert capsys.readouterr().out == f"{ANSWER}\n"


def test_without_a_server(capsys: pytest.CaptureFixture[str]) -> None:
    exec(runnable(MANAGER), {})
    assert capsys.readouterr().out == f"{ANSWER}\n"


def input_row(tensor: TensorSpecification) -> str:
    types = " or ".join(types_of(tensor.name))
    shapes = " or ".join(shape_in_words(shape) for shape in shapes_of(tensor.name))
    required = "" if tensor.optional else "required: "
    return f"| `{tensor.name}` | {types} | {shapes} | {required}"


def test_every_tensor_is_in_the_tables() -> None:
    outputs = [f"| `{tensor.name}` | {tensor.dtype} | {shape_in_words(tensor.shape)} | " for tensor in OUTPUTS]
    rows = [*map(input_row, INPUTS), *outputs]
    assert [row for row in rows if f"\n{row}" not in PAGE] == []


def test_every_parameter_of_its_own_is_documented_with_its_default() -> None:
    common = GenerationParameters.model_fields
    own = {
        name: field
        for name, field in TrtllmParameters.model_fields.items()
        if name not in common or (field.default, field.description) != (common[name].default, common[name].description)
    }
    assert {"do_sample", "bad_sequences", "min_length"} <= own.keys()
    for name, field in own.items():
        assert f"| `{name}` | {json.dumps(field.default)} | {field.description} |" in PAGE
