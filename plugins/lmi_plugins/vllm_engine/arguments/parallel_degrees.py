"""Parallel degrees, reduced if a model directory is for a host with more devices."""

from typing import NamedTuple

from lmi_core.host.substitution import Substitution

MAX = "max"  # value of `option.tensor_parallel_degree`: every device


class ParallelDegrees(NamedTuple):
    """The tensor and pipeline parallel degrees in effect.

    If `tensor` is None, it means all devices that the engine finds.
    """

    tensor: int | None
    pipeline: int
    substitutions: tuple[Substitution, ...] = ()


def parallel_degrees(tensor: int | str | None, pipeline: int, devices: int | None, lacking: str) -> ParallelDegrees:
    """Return the degrees reduced to what fits on the devices, unchanged if their number is unknown (None).

    `lacking` explains why there are no more devices.
    """
    asked = tensor if isinstance(tensor, int) else None
    if devices is None or (asked or 1) * pipeline <= devices:
        return ParallelDegrees(asked, pipeline)
    fitting_pipeline = _largest_divisor(pipeline, devices)
    fitting = None if asked is None else _largest_divisor(asked, devices // fitting_pipeline)
    reduced = (("tensor_parallel_degree", asked, fitting), ("pipeline_parallel_degree", pipeline, fitting_pipeline))
    return ParallelDegrees(
        fitting,
        fitting_pipeline,
        tuple(
            Substitution(f"option.{name}", str(degree), lacking, f"the degree is {used}, and the model runs slower")
            for name, degree, used in reduced
            if degree != used
        ),
    )


def _largest_divisor(degree: int, most: int) -> int:
    """Return the degree's largest divisor up to `most`, which also divides the model's attention heads and layers."""
    return next(divisor for divisor in range(min(degree, most), 0, -1) if degree % divisor == 0)
