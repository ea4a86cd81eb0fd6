"""The answer that docs/reference/console.md shows has the members of a server's own."""

import json
import re
from typing import Any

from tests.conftest import SCRIPTED, ModelDirectory, Serve
from tests.docs.pages import page

TEXT = page("console.md").read_text(encoding="utf-8")


def form(value: Any) -> Any:
    """Return the names of all members, without what changes from host to host."""
    if isinstance(value, dict):
        return {name: form(each) for name, each in value.items() if name != "gpus"}
    return [form(each) for each in value] if isinstance(value, list) else None


async def test_the_state(serve: Serve, model_dir: ModelDirectory) -> None:
    (shown,) = re.findall(r"```json\n(.*?)```", TEXT, re.DOTALL)
    server = await serve(model_dir({"serving.properties": SCRIPTED}, "first"))
    told = (await server.get("/console/state")).json()
    assert form(json.loads(shown)) == form(told)
    model, expected = told["models"][0], json.loads(shown)["models"][0]
    same = set(expected) - {"modelUrl", "loadedAt"}
    assert {name: model[name] for name in same} == {name: expected[name] for name in same}
