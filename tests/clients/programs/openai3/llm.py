"""The command `llm`, which reads the models of an API from a file of its own."""

import subprocess
import sys
from pathlib import Path

from tests.clients.programs.cases import case, equal, hello, saying
from tests.clients.programs.values import ANSWER, QUESTION, WEATHER_ANSWER, WEATHER_QUESTION

PACKAGE = "llm"

MODELS = """\
- model_id: hello
  model_name: hello
  api_base: {hello}/v1
- model_id: hello-completions
  model_name: hello
  api_base: {hello}/v1
  completion: true
- model_id: saying
  model_name: saying
  api_base: {saying}/v1
  supports_tools: true
"""
TOOL = """\
def weather(city: str) -> str:
    "Return the weather of a city."
    return "22 degrees and sunny"
"""


def llm(*arguments: str) -> str:
    folder = Path.home() / "llm"
    folder.mkdir(exist_ok=True)
    (folder / "extra-openai-models.yaml").write_text(MODELS.format(hello=hello(), saying=saying()))
    command = [sys.executable, "-m", "llm", *arguments]
    environment = {"LLM_USER_PATH": str(folder), "OPENAI_API_KEY": "any", "HOME": str(Path.home())}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(done.stderr)
    return done.stdout.strip()


@case("OpenAI chats", "streams")
def stream() -> None:
    equal(llm("-m", "hello", "-o", "temperature", "0", QUESTION), ANSWER)


@case("OpenAI chats", "answers")
def whole() -> None:
    equal(llm("-m", "hello", "--no-stream", "-o", "temperature", "0", QUESTION), ANSWER)


@case("OpenAI chats", "tool calls and their results")
def tools() -> None:
    equal(llm("-m", "saying", "--functions", TOOL, WEATHER_QUESTION), WEATHER_ANSWER)


@case("OpenAI completions", "streams")
def completion() -> None:
    equal(llm("-m", "hello-completions", "-o", "temperature", "0", "-o", "max_tokens", "64", QUESTION), ANSWER)
