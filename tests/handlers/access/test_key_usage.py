"""What a key has used of its limits, and changes of these."""

from pathlib import Path

from lmi_handlers.access.api_keys import ApiKeys
from lmi_handlers.access.options import AccessOptions
from lmi_handlers.testing import running_server
from tests.conftest import SCRIPTED, ModelDirectory

HEADERS = {"Authorization": "Bearer sk-ann"}


async def test_a_lower_limit_gives_back_nothing_that_was_used(tmp_path: Path, model_dir: ModelDirectory) -> None:
    file = tmp_path / "keys"
    file.write_text("ann sk-ann requests_per_minute=2\n")
    keys = ApiKeys(file=file)
    directory = model_dir({"serving.properties": SCRIPTED})
    async with running_server(directory, access=AccessOptions(api_keys=keys)) as server:
        answers = [await server.post("/invocations", {"inputs": "a"}, headers=HEADERS) for _ in range(3)]
        assert [answer.status for answer in answers] == [200, 200, 429]
        file.write_text("ann sk-ann requests_per_minute=1\n")
        keys.reload()
        assert (await server.post("/invocations", {"inputs": "a"}, headers=HEADERS)).status == 429
