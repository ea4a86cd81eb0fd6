"""model.py files that generate with a service of djl_python, in their worker processes, over a real socket."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from lmi_core.errors import ConfigurationError
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve, running_server
from tests.lmi_process import lmi

SCRIPTS = Path(__file__).parents[1] / "model_scripts"
HELLO = Path(__file__).parents[2] / "examples" / "hello"
NAME, MY_NAME = "What is your name?", "My name is Hello."
QUESTION, ANSWER = "What is Deep Learning?", "Deep Learning is a really cool field."

of_the_module = pytest.mark.asyncio(loop_scope="module")  # as the server is


def directory_of(parent: Path, script: str, properties: str) -> Path:
    directory = parent / script
    shutil.copytree(SCRIPTS / script, directory)
    (directory / "serving.properties").write_text(f"option.model_id={HELLO}\n{properties}")
    return directory


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningServer]:
    """Two models: one in dynamic batches, one that streams."""
    store = tmp_path_factory.mktemp("store")
    directory_of(
        store, "huggingface_prompt", "engine=Python\nbatch_size=4\nmax_batch_delay=500\noption.task=text-generation\n"
    )
    directory_of(store, "huggingface_stream", "option.enable_streaming=false\n")
    async with running_server(store) as running:
        yield running


@of_the_module
async def test_dynamic_batch_of_bodies_of_ones_own(server: RunningServer) -> None:
    bodies = [
        {"prompt": NAME},
        {"prompt": [QUESTION, NAME], "max_new_tokens": 20},
        {"prompt": NAME, "max_new_tokens": -1},
    ]
    calls = [server.post("/predictions/huggingface_prompt", body) for body in bodies]
    one, two, wrong = await asyncio.gather(*calls)
    assert one.json() == [{"generated_text": NAME + MY_NAME}]
    assert two.json() == [{"generated_text": QUESTION + ANSWER}, {"generated_text": NAME + MY_NAME}]
    assert wrong.json()["error"] == "`max_new_tokens` must be greater than or equal to 1. Given: -1"
    alone = await server.post("/predictions/huggingface_prompt", {"prompt": 7})
    assert (alone.status, alone.json()["error"]) == (424, "`inputs` must be a string, or a list of strings. Given: 7")


@of_the_module
async def test_stream_of_a_subclass(server: RunningServer) -> None:
    answer = await server.post("/predictions/huggingface_stream", {"inputs": [NAME]})
    assert (answer.status, answer.content_type) == (200, "application/jsonlines")
    form = {"Content-Type": "application/x-www-form-urlencoded"}  # curl's -d
    same = await server.post("/predictions/huggingface_stream", {"inputs": [NAME]}, headers=form)
    for each in (answer, same):
        assert "".join(line["outputs"][0] for line in each.json_lines()) == MY_NAME
        assert len(each.json_lines()) > 1


@of_the_module
async def test_service_s_adapter_in_the_query(server: RunningServer) -> None:
    answer = await server.post("/predictions/huggingface_stream?adapter=french", {"inputs": [NAME]})
    assert answer.status == 424
    assert answer.json()["error"] == "there is no adapter `french`. Known: this model has none"


@of_the_module
async def test_stream_of_the_transformers_model(server: RunningServer) -> None:
    body = {"own": [NAME, QUESTION], "parameters": {"max_new_tokens": 20}}
    lines = (await server.post("/predictions/huggingface_stream", body)).json_lines()
    assert ["".join(texts) for texts in zip(*(line["outputs"] for line in lines), strict=True)] == [MY_NAME, ANSWER]
    assert (await server.post("/predictions/huggingface_stream", {"own": [NAME]})).status == 200


async def test_prediction_handler(serve: Serve, model_dir: ModelDirectory) -> None:
    directory = model_dir({})
    shutil.copytree(SCRIPTS / "prediction", directory, dirs_exist_ok=True)
    predicting = await serve(directory)
    answer = await predicting.post("/invocations", {"features": [1, 2]})
    assert answer.json() == {"predictions": [2.5, 5.0], "served_by": "model.py"}
    failed = await predicting.post("/invocations", {"features": "x"})
    assert failed.status == 424


PREDICTION = """\
from djl_python.input_parser import prediction_handler


@prediction_handler
def predict(data, model, **kwargs):
    return {"texts": [each["generated_text"] for each in model(data, return_full_text=False)]}
"""


async def test_prediction_handler_without_a_model_of_its_own_gets_the_directorys(
    serve: Serve, model_dir: ModelDirectory
) -> None:
    predicting = await serve(model_dir({"serving.properties": SCRIPTED, "model.py": PREDICTION}))
    answer = await predicting.post("/invocations", {"inputs": [NAME]})
    assert answer.json() == {"texts": ["Deep Learning is a really cool field."]}


async def test_imports_that_cannot_work_stop_the_start(serve: Serve, tmp_path: Path) -> None:
    directory = directory_of(tmp_path, "missing_import", "")
    with pytest.raises(ConfigurationError, match=r"model\.py:2: `from djl_python\.deepspeed import DeepSpeedService`"):
        await serve(directory)


@pytest.mark.parametrize("command", [("check",), ("serve", "--port", "0")])
async def test_commands_say_which_import_cannot_work(tmp_path: Path, command: tuple[str, ...]) -> None:
    directory = directory_of(tmp_path, "missing_import", "")
    done = await asyncio.to_thread(lmi, command[0], str(directory), *command[1:])
    assert done.returncode == 2
    first, *others = [line for line in done.stderr.splitlines() if "INFO    lmi_" not in line]  # without the log
    assert first.startswith(
        "lmi: model.py:2: `from djl_python.deepspeed import DeepSpeedService` cannot work: LMI itself"
    )
    assert [line.partition(":")[0] for line in others] == ["helper.py", "helper.py"]
    assert "pip install" not in done.stderr


async def test_check_warns_of_imports_that_may_never_run(tmp_path: Path) -> None:
    directory = directory_of(tmp_path, "sagemaker_template", "")
    done = await asyncio.to_thread(lmi, "check", str(directory))
    assert done.returncode == 0
    assert "warning: model.py:16: `from djl_python.deepspeed import handle` cannot work" in done.stdout
