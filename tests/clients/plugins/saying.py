"""A backend whose model calls the first tool, thinks when it is asked to, and answers once it has the tool's result."""

import json
import re
from collections.abc import AsyncGenerator, Callable
from typing import Any

from lmi_core.backend import Backend
from lmi_core.generation.output import GenerationStep
from lmi_core.generation.request import ValidRequest
from lmi_core.hookspecs import hookimpl
from lmi_plugins.backends.scripted import Script, ScriptedBackend

ARGUMENTS = {"weather": {"city": "Paris"}, "add": {"a": 2, "b": 3}}
DEFAULT_ARGUMENTS = {"colour": "green", "count": 3}
THOUGHT = "<think>It is a question about fields.</think>"
ANSWER = "Deep Learning is a really cool field."
TOOL = re.compile(r"^tool: (\w+)$", re.MULTILINE)
RESULT = re.compile(r"^(?:tool|function): (?!\w+$)(.*)$", re.MULTILINE)


class SayingBackend(ScriptedBackend):
    """The scripted backend, with scripts chosen by what the prompt asks for."""

    name = "saying"

    async def generate(self, request: ValidRequest) -> AsyncGenerator[GenerationStep, None]:
        self.enqueue(Script(answer_text(self.tokenizer.decode(list(request.prompt_ids)))))
        async for step in super().generate(request):
            yield step


def answer_text(prompt: str) -> str:
    """Return what the model says to this prompt, which the scripted backend's chat template made."""
    results = [result for result in RESULT.findall(prompt) if result]
    tools = TOOL.findall(prompt)
    if results:
        return f"The tool says: {results[-1]}"
    if tools:
        call = {"name": tools[0], "arguments": ARGUMENTS.get(tools[0], DEFAULT_ARGUMENTS)}
        return f"<tool_call>\n{json.dumps(call)}\n</tool_call>"
    return (THOUGHT if "Think" in prompt else "") + ANSWER


@hookimpl
def lmi_register_backends(register: Callable[[type[Backend[Any]]], None]) -> None:
    register(SayingBackend)
