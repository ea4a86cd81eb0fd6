"""A request's outputs, whose tokens gather within vLLM while nobody waits for them.

vLLM has the means, its stream interval: between a request's first token and its last, it makes no output before it has
so many tokens. Here the interval has no end while a stream waits, and what has gathered is taken out when the wait is
over: so a token that nobody reads yet costs no output of its own.
"""

import sys

from lmi_core.engines.gathering import GatheringStream
from lmi_plugins.vllm_engine.library import AsyncLLM, RequestOutput, RequestOutputCollector

EACH_TOKEN, UNENDING = 1, sys.maxsize  # intervals


class GatheringOutputs:
    def __init__(self, engine: AsyncLLM, collector: RequestOutputCollector, stream: GatheringStream) -> None:
        self._collector = collector
        self._stream = stream
        self._state = engine.output_processor.request_states.get(collector.request_id)  # until the last output
        self._put = collector.put
        collector.put = self._put_and_tell

    async def gather(self) -> None:
        """Until it is time to read, or the last output is there.

        Does nothing where there is something to read, or where vLLM has been told an interval of its own.
        """
        state = self._state
        if state is None or self._collector.output is not None or state.stream_interval != EACH_TOKEN:
            return
        state.sent_tokens_offset = state.detokenizer.num_output_tokens()
        state.stream_interval = UNENDING
        await self._stream.wait()
        state.stream_interval = EACH_TOKEN
        gathered = state.detokenizer.output_token_ids[state.sent_tokens_offset :]
        if gathered:  # and not taken by the last output
            self._put(state.make_request_output(gathered, None, None, None))

    def _put_and_tell(self, output: RequestOutput | Exception) -> None:
        """vLLM itself tells only of the first output that is unread."""
        self._put(output)
        if isinstance(output, Exception) or output.finished:
            del self._collector.put  # which is vLLM's again, and holds nothing of the request any more
            self._stream.end()
