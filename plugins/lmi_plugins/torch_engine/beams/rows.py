"""The rows of beam searches in a step's batch."""

from lmi_plugins.torch_engine.beams.search import BeamSearch
from lmi_plugins.torch_engine.sequences.step_batch import StepBatch


def beam_rows(batch: StepBatch) -> list[tuple[BeamSearch, list[int]]]:
    """Return the searches whose beams are computed to their end, and the row of the logits of each beam."""
    searches = {chunk.group: None for chunk in batch.chunks if not chunk.group.sampled}
    return [
        (group, [batch.next_token_rows[beam] for beam in group.sequences])
        for group in searches
        if isinstance(group, BeamSearch) and group.sequences[0] in batch.next_token_rows
    ]
