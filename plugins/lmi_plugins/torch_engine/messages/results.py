"""The results of a step for requests."""

from collections.abc import Iterable

from lmi_core.errors import GenerationFailed, LmiError
from lmi_core.generation.output import GenerationStep

Result = GenerationStep | LmiError  # an error ends its request; a finish reason ends one of its sequences
Results = list[tuple[str, Result]]  # by request id


class StepFailed(GenerationFailed):
    """The failure of a whole step, caused by any of its requests."""

    kind = "step_failed"


def merge_steps(results: Iterable[tuple[str, Result]]) -> Results:
    """Merge consecutive steps of the same sequence; errors stay separate."""
    merged: Results = []
    for request_id, result in results:
        before = merged[-1][1] if merged else None
        if isinstance(result, GenerationStep) and isinstance(before, GenerationStep):
            extend_step(before, result)
        else:
            merged.append((request_id, result))
    return merged


def extend_step(step: GenerationStep, later: GenerationStep) -> None:
    """Add a later step of the same sequence. Only a sequence's first step contains facts about the prompt."""
    step.tokens += later.tokens
    step.finish_reason, step.stop_sequence = later.finish_reason, later.stop_sequence
    if later.generation_logits is not None:
        step.generation_logits = (step.generation_logits or b"") + later.generation_logits
