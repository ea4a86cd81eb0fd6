"""The control measurement of vLLM's engine without HTTP: `python -m tests.benchmarks.bare_engine ARGUMENTS`.

Each line of standard input is a number of streams, answered by a Result and the CPU seconds used.
"""

import asyncio
import json
import sys
import time
from dataclasses import asdict

import uvloop

from lmi_plugins.vllm_engine.arguments.parsing import engine_arguments
from lmi_plugins.vllm_engine.library import AsyncLLM, RequestOutputKind, SamplingParams, token_prompt
from tests.benchmarks.load_client import Result


async def run(engine: AsyncLLM, prompt_ids: list[int], streams: int, new_tokens: int) -> Result:
    async def stream(number: int) -> float:
        parameters = SamplingParams(
            max_tokens=new_tokens, temperature=0, ignore_eos=True, output_kind=RequestOutputKind.DELTA
        )
        tokens, first = 0, 0.0
        async for output in engine.generate(token_prompt(prompt_ids), parameters, f"{begun}-{number}"):
            first = first or time.perf_counter()
            tokens += len(output.outputs[0].token_ids)
        assert tokens == new_tokens, tokens
        return first - begun

    begun = time.perf_counter()
    first_tokens = await asyncio.gather(*map(stream, range(streams)))
    return Result(time.perf_counter() - begun, first_tokens)


async def serve(arguments: dict[str, str], prompt_ids: list[int], new_tokens: int) -> None:
    engine = AsyncLLM.from_engine_args(engine_arguments(arguments))
    try:
        await run(engine, prompt_ids, 1, new_tokens)
        while line := await asyncio.to_thread(sys.stdin.readline):
            begun = time.process_time()
            result = await run(engine, prompt_ids, int(line), new_tokens)
            print(json.dumps(asdict(result) | {"cpu": time.process_time() - begun}), flush=True)
    finally:
        engine.shutdown()


if __name__ == "__main__":
    uvloop.run(serve(*json.loads(sys.argv[1])))
