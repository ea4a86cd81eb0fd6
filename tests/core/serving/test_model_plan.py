"""Problems of a model directory that its plan lists together."""

import pytest

from lmi_core.errors import ConfigurationError
from lmi_core.plugins.loading import load_plugins
from lmi_core.serving.model_plan import read_plan
from tests.conftest import SCRIPTED, ModelDirectory


@pytest.mark.parametrize("script", ["", "option.entryPoint=missing.py\n"])
def test_an_unknown_backend_hides_no_other_problem(model_dir: ModelDirectory, script: str) -> None:
    properties = (
        "option.rolling_batch=vlm\njob_queue_size=lots\noption.max_rolling_batch_size=many\n"
        "option.trust_remote_code=maybe\noption.tensor_paralel_degree=2\noption.tensor_parallel_degree=2\n"
        "option.output_formatter=jsonline\n"
    )
    with pytest.raises(ConfigurationError) as raised:
        read_plan("m", model_dir({"serving.properties": properties + script}), {}, load_plugins())
    begun = [
        "serving.properties:2: job_queue_size must be an integer",
        "there is no backend `vlm`",
        "serving.properties:4: option.trust_remote_code must be true or false",
        "serving.properties:3: option.max_rolling_batch_size must be an integer",
        "there is no output formatter `jsonline`. Did you mean `jsonlines`? Known: ",
        *(["option.entryPoint=missing.py: "] if script else []),
        "warning: serving.properties:5: option.tensor_paralel_degree is not a known key and is ignored; did you mean "
        "option.tensor_parallel_degree?",
    ]
    found = raised.value.message.split("\n")
    assert [line[: len(start)] for line, start in zip(found, begun, strict=True)] == begun


def test_a_script_may_define_the_formatter_of_an_unknown_backend(model_dir: ModelDirectory) -> None:
    files = {"serving.properties": "option.rolling_batch=vlm\noption.output_formatter=mine\n", "model.py": ""}
    with pytest.raises(ConfigurationError) as raised:
        read_plan("m", model_dir(files), {}, load_plugins())
    assert [line.startswith("there is no backend `vlm`") for line in raised.value.message.split("\n")] == [True]


@pytest.mark.parametrize(
    ("properties", "warned"),
    [
        ("minWorkers=3\nmaxWorkers=2", True),
        ("minWorkers=3\ncpu.maxWorkers=2\ngpu.maxWorkers=2", True),
        ("minWorkers=3", False),
        ("minWorkers=0\nmaxWorkers=2", False),
    ],
)
def test_fewer_workers_at_most_than_at_least(model_dir: ModelDirectory, properties: str, *, warned: bool) -> None:
    plan = read_plan("m", model_dir({"serving.properties": SCRIPTED + properties}), {}, load_plugins())
    assert ("minWorkers=3 exceeds maxWorkers=2, which has no effect" in plan.warnings) is warned
