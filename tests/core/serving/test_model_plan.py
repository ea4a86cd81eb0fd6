"""Problems of a model directory that its plan lists together."""

import pytest

from lmi_core.errors import ConfigurationError
from lmi_core.plugins.loading import load_plugins
from lmi_core.serving.model_plan import read_plan
from tests.conftest import SCRIPTED, ModelDirectory


def test_an_unknown_backend_hides_no_wrong_key_of_the_server(model_dir: ModelDirectory) -> None:
    properties = "option.rolling_batch=vlm\njob_queue_size=lots\n"
    with pytest.raises(ConfigurationError) as raised:
        read_plan("m", model_dir({"serving.properties": properties}), {}, load_plugins())
    wrong, unknown = raised.value.message.split("\n")
    assert wrong.startswith("serving.properties:2: job_queue_size must be an integer")
    assert unknown.startswith("there is no backend `vlm`")


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
