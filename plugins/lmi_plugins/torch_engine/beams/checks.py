"""Checks of whether beam search can serve a request."""

from lmi_core.errors import InvalidParameter
from lmi_plugins.torch_engine.cache.block_pool import BLOCK_SIZE, blocks_for
from lmi_plugins.torch_engine.messages.requests import ParameterNames
from lmi_plugins.torch_engine.sequences.sequence import Sequence


def check_beams(sequence: Sequence, blocks: int, rows: int, paged: bool, names: ParameterNames) -> None:
    """Raise InvalidParameter where a cache of `blocks` and a batch of `rows` can never hold all the beams."""
    parameters = sequence.parameters
    beams = parameters.num_beams
    if not paged:
        raise InvalidParameter(
            f"{names.num_beams} must be 1 with this model, which runs each sequence separately, without a paged cache"
        )
    excluded = {
        "a temperature": not parameters.greedy,
        "`n` or `best_of`": parameters.num_samples > 1,
        "guided decoding": parameters.guide is not None,
    }
    for name, given in excluded.items():
        if given:
            raise InvalidParameter(f"{names.num_beams} above 1 and {name} cannot be used together")
    if beams > rows:
        raise InvalidParameter(
            f"{names.num_beams} must be at most {rows}, the number of sequences that run at the same time. Given: "
            f"{beams}"
        )
    shared = sequence.prompt_length // BLOCK_SIZE
    if shared + beams * (blocks_for(sequence.max_length) - shared) > blocks:
        raise InvalidParameter(
            f"{names.num_beams} must be smaller: the cache of {blocks * BLOCK_SIZE} tokens cannot hold {beams} "
            f"sequences of {sequence.max_length} tokens. Given: {beams}"
        )
