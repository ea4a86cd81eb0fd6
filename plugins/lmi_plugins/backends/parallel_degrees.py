"""Parallel degrees, reduced where a model directory was made for a host with more devices."""

from typing import NamedTuple

MAX = "max"  # value of `option.tensor_parallel_degree`: every device


class ParallelDegrees(NamedTuple):
    """The tensor and pipeline parallel degrees in effect; `tensor` None means all devices that the engine finds."""

    tensor: int | None
    pipeline: int
    warning: str | None = None


def parallel_degrees(tensor: int | str | None, pipeline: int, devices: int | None) -> ParallelDegrees:
    """Return the degrees reduced to what fits on the devices, unchanged if their number is unknown (None)."""
    asked = tensor if isinstance(tensor, int) else None
    if devices is None or (asked or 1) * pipeline <= devices:
        return ParallelDegrees(asked, pipeline)
    fitting_pipeline = _largest_divisor(pipeline, devices)
    fitting = None if asked is None else _largest_divisor(asked, devices // fitting_pipeline)
    wanted = " and ".join(
        f"option.{name}={degree}"
        for name, degree in (("tensor_parallel_degree", asked), ("pipeline_parallel_degree", pipeline))
        if degree is not None and degree > 1
    )
    used = (fitting or 1) * fitting_pipeline
    return ParallelDegrees(
        fitting,
        fitting_pipeline,
        f"{wanted} asks for {(asked or 1) * pipeline} devices, but this host has {devices}: the model runs on {used}",
    )


def _largest_divisor(degree: int, most: int) -> int:
    """Return the degree's largest divisor up to `most`, which also divides the model's attention heads and layers."""
    return next(divisor for divisor in range(min(degree, most), 0, -1) if degree % divisor == 0)
