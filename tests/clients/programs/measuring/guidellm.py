"""GuideLLM, which measures a server under load."""

import json
import os
import sys
from pathlib import Path
from typing import Any

from tests.clients.programs.cases import TORCH_VARIABLE, case, equal, hello
from tests.clients.programs.values import HELLO, HELLO_FOLDER

PACKAGE = "guidellm"

REQUESTS, TOKENS = 6, 8

# It loads its data with PyTorch: the one that is installed for the tests, after the packages of this environment.
sys.path.append(os.environ[TORCH_VARIABLE])


def measure(route: str) -> dict[str, Any]:
    from guidellm.__main__ import cli  # reads its settings from the environment

    results = Path.home() / "results.json"
    words = {
        "--backend": f"kind=openai_http,target={hello()},model={HELLO},request_format={route}",
        "--profile": "kind=concurrent,streams=2",
        "--constraint": f"kind=max_requests,count={REQUESTS}",
        "--tokenizer": f"kind=huggingface_auto,model={HELLO_FOLDER}",
        "--data": f"kind=synthetic_text,prompt_tokens=16,output_tokens={TOKENS}",
        "--output": f"kind=json,path={results}",
    }
    cli(["run", *(part for pair in words.items() for part in pair), "--disable-console"], standalone_mode=False)
    (benchmark,) = json.loads(results.read_text(encoding="utf-8"))["benchmarks"]
    return dict(benchmark["metrics"])


def check(metrics: dict[str, Any]) -> None:
    totals = metrics["request_totals"]
    equal((totals["successful"], totals["errored"], totals["incomplete"]), (REQUESTS, 0, 0))
    equal(metrics["output_token_count"]["successful"]["total_sum"], REQUESTS * TOKENS)
    assert metrics["time_to_first_token_ms"]["successful"]["min"] > 0


@case("OpenAI chats", "a load of streams, with counts and times")
def chats() -> None:
    check(measure("/v1/chat/completions"))


@case("OpenAI completions", "a load of streams, with counts and times")
def completions() -> None:
    check(measure("/v1/completions"))
