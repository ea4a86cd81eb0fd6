"""The time limits of a call, and the errors of calls that exceed them."""

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Self

from lmi_core.configuration.properties import RequestProperties
from lmi_core.configuration.properties.request import DEFAULT_TIMEOUT
from lmi_core.errors import GenerationTimeout, LmiError, QueueTimeout

NONE = math.inf


@dataclass(frozen=True)
class TimeLimits:
    """The maximum seconds of each phase of a call. Each phase starts at the end of the previous one."""

    queue: float = NONE
    first_token: float = NONE
    inter_token: float = NONE

    @classmethod
    def of(cls, options: RequestProperties) -> Self:
        """Return the limits that a model's options set.

        The default is LMI's 120 seconds, for each phase unless the whole answer has a limit.
        """
        default = DEFAULT_TIMEOUT if options.predict_timeout is None else 0
        return cls(
            _limit(options.queue_timeout, 0),
            _limit(options.first_token_timeout, default),
            _limit(options.inter_token_timeout, default),
        )

    @cached_property
    def shortest(self) -> float:
        """The shortest of the limits; infinity without limits."""
        return min(self.queue, self.first_token, self.inter_token)

    def queue_error(self) -> LmiError:
        return QueueTimeout(f"the request did not begin within option.queue_timeout={self.queue:g} seconds")

    def first_error(self, unit: str) -> LmiError:
        """Return the error for a call whose first `unit`, such as a token, was not ready in time."""
        return GenerationTimeout(
            f"no first {unit} was generated within option.first_token_timeout={self.first_token:g} seconds"
        )

    def next_error(self, unit: str) -> LmiError:
        return GenerationTimeout(
            f"no further {unit} was generated within option.inter_token_timeout={self.inter_token:g} seconds"
        )


def _limit(seconds: float | None, default: float) -> float:
    return (default if seconds is None else seconds) or NONE


@asynccontextmanager
async def within(seconds: float | None, limit: str) -> AsyncIterator[None]:
    """Raise GenerationTimeout if the body takes longer than `seconds`; the message names the `limit`."""
    if seconds is None:
        yield
        return
    try:
        async with asyncio.timeout(seconds) as deadline:
            yield
    except TimeoutError:
        if not deadline.expired():  # raised by the backend
            raise
        raise GenerationTimeout(f"the answer was not complete within {limit}{seconds:g} seconds") from None
