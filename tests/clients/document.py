"""Runs every client and writes the page of tested features: `python -m tests.clients.document FILE`."""

import asyncio
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.clients.listing import Declared, Program, programs
from tests.clients.run_programs import Outcomes, run_programs

INTRODUCTION = """\
# Clients

The features of common clients that are tested, with the tested versions. Each test runs the unmodified client against
`lmi serve` and checks texts, counts and finish reasons. `make clients-page` runs all tests and writes this page;
`make test` runs them too, and fails if this page is out of date.

The models are [`examples/hello`](../../examples/hello/README.md) on the torch backend and, for tools, reasoning and
scores, models with scripted answers. The programs in `tests/clients/programs` show how to set each client's URL.
[suites.md](suites.md) has the results of other projects' test suites. Claude Code 2.1.197, Codex 0.171.0, crewai
1.15.30, openai-agents 0.24.0 (each with a tool call) and aider 0.86.2 were run by hand; tests repeat the requests of
the first two. These were run by hand too:

| program | dialects of its tool calls |
|---|---|
| Claude Agent SDK 0.3.332 (npm) | Anthropic |
| Cline's CLI 3.0.65, Qwen Code 0.15.10, gptme 0.32.0 | OpenAI chats |
| Continue's CLI 1.5.47 | OpenAI chats, Anthropic, Ollama |
| opencode 1.18.33 | OpenAI chats, Anthropic |
| LiteLLM's proxy 1.108.7, also asked in Anthropic's and Responses' form | OpenAI chats, Anthropic, Ollama |
| agno 3.1.10, haystack-ai 3.4.1 | OpenAI chats and Responses, Anthropic, Ollama |
| openai-agents 0.20.0 (PyPI and npm) | OpenAI chats and Responses |
| inspect-ai 0.3.285 | OpenAI chats, Anthropic |
| autogen-ext 0.7.5, semantic-kernel 1.45.0 | OpenAI chats, Ollama |
| @langchain/anthropic 1.5.11, @ai-sdk/anthropic 3.0.140 (npm) | Anthropic |
| llama-index-llms-ollama 0.11.0, llm-ollama 0.19.1 | Ollama |
| @langchain/ollama 1.3.0, ollama-ai-provider-v2 3.6.0, ai-sdk-ollama 4.3.0 (npm) | Ollama |

| program | dialects of its other requests |
|---|---|
| outlines 1.3.3 (structured outputs) | OpenAI chats, TGI, Ollama |
| mem0ai 2.2.1 (memories) | OpenAI chats and embeddings, Anthropic, Ollama |
| lightrag-hku 1.5.7 (documents) | OpenAI chats and embeddings, Ollama |
| dspy 3.4.1, magentic 0.41.1, open-interpreter 0.4.3, shell-gpt 1.5.1 | OpenAI chats |
| langchain-cohere 0.6.0, cohere-haystack 11.0.0 (rerankers, embeddings) | Cohere's rerank and embeddings |

Examples that other projects publish for their own servers were run too, with only the address and the names of models
changed. Unsupported features are in brackets:

- vLLM 0.32.0, `examples/` and the snippets of its pages: chats, completions, batches, tools, reasoning, responses,
  structured outputs, embeddings and scores (tools of MCP servers; vectors in other types than float32)
- TGI (db931fc), the snippets of its pages: prompts, streams, guidance, tools
- Ollama (fb30760), each request of its documentation, OpenAI's and Anthropic's API included, and examples of
  ollama-python (25b9329) and ollama-js (f23d7ee) (the creation, copy, upload and deletion of models)
- openai-python (e43b422) and openai-node (7b7d6ca), the examples of chats, completions and responses (responses in the
  background and over a WebSocket)
- anthropic-sdk-python (009b035), and Anthropic's cookbook (4b36a1e) and courses (f4dbb13): messages, streams, tools,
  thinking, prompt caching (batches of messages, citations, web search)
- Triton's vLLM backend (8de0c14), `samples/client.py`, with and without streams

These are run by tests:

| client | version | dialect | features |
|---|---|---|---|
"""
FAULTS = """
## Client bugs

Each bug has a test, which fails when a new version of the client fixes the bug.

| client | dialect | bug | workaround |
|---|---|---|---|
"""


def page(found: Sequence[Program], outcomes: Mapping[str, Outcomes]) -> str:
    """Return the page, without the features whose cases failed."""
    passed = [(program, _passed(program, outcomes[program.name])) for program in found]
    rows = [row for program, cases in passed for row in _rows(program, cases)]
    faults = [row for program, cases in passed for row in _faults(program, cases)]
    return INTRODUCTION + "".join(rows) + FAULTS + "".join(faults)


def failures(outcomes: Mapping[str, Outcomes]) -> dict[str, str]:
    """Return what the failed cases raised, by program and case."""
    return {
        f"{program}.{case}": raised
        for program, cases in outcomes.items()
        for case, raised in cases.items()
        if raised is not None
    }


def _passed(program: Program, outcomes: Outcomes) -> list[Declared]:
    return [case for case in program.cases if outcomes[case.name] is None]


def _rows(program: Program, cases: Sequence[Declared]) -> Iterator[str]:
    works = [case for case in cases if case.workaround is None]
    for dialect in dict.fromkeys(case.dialect for case in works):
        features = ", ".join(case.feature for case in works if case.dialect == dialect)
        yield f"| {program.title} | {program.version} | {dialect} | {features} |\n"


def _faults(program: Program, cases: Sequence[Declared]) -> Iterator[str]:
    for case in cases:
        if case.workaround is not None:
            yield f"| {program.title} | {case.dialect} | {case.feature} | {case.workaround} |\n"


def main() -> None:
    found = programs()
    outcomes = asyncio.run(run_programs(found))
    if failed := failures(outcomes):
        sys.exit("\n".join(f"{name}: {raised}" for name, raised in failed.items()))
    Path(sys.argv[1]).write_text(page(found, outcomes), encoding="utf-8")


if __name__ == "__main__":
    main()
