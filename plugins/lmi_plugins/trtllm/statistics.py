"""Statistics of an iteration, by the names of NVIDIA's batch manager."""

import json
import time
from collections.abc import Sequence as Items

from lmi_plugins.torch_engine.cache.block_pool import BLOCK_SIZE
from lmi_plugins.torch_engine.engine.engine import Engine
from lmi_plugins.torch_engine.sequences.step_batch import Chunk


def statistics(engine: Engine, iteration: int, active: int) -> str:
    """Return a JSON object about an iteration that began with `active` requests."""
    scheduled = _requests(engine.latest_chunks)
    context = [chunk for chunk in engine.latest_chunks if chunk.start < chunk.sequence.prompt_length]
    in_context = _requests(context)
    return json.dumps(
        {
            "Timestamp": time.strftime("%m-%d-%Y %H:%M:%S"),
            "Iteration Counter": iteration,
            "Active Request Count": active,
            "Max Request Count": engine.limits.max_batch_size,
            "Max KV cache blocks": engine.pool.size,
            "Free KV cache blocks": engine.pool.free,
            "Used KV cache blocks": engine.pool.size - engine.pool.free,
            "Tokens per KV cache block": BLOCK_SIZE,
            "Scheduled Requests": len(scheduled),
            "Context Requests": len(in_context),
            "Generation Requests": len(scheduled - in_context),
            "Total Context Tokens": sum(min(each.end, each.sequence.prompt_length) - each.start for each in context),
        }
    )


def _requests(chunks: Items[Chunk]) -> set[str]:
    return {chunk.sequence.request_id for chunk in chunks}
