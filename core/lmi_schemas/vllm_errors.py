"""The JSON of a failure in vLLM's streams, which LMI's asynchronous mode repeats."""

from typing import Literal

from typing_extensions import TypedDict

from lmi_core.errors import LmiError


class VllmErrorInfo(TypedDict):
    """A failure in the engine."""

    message: str
    type: Literal["InternalServerError"]
    param: None
    code: Literal[500]


# The last line of a failed stream in LMI's asynchronous mode.
VllmError = TypedDict("VllmError", {"error": VllmErrorInfo})


def stream_error(error: LmiError) -> VllmError:
    return {"error": {"message": error.message, "type": "InternalServerError", "param": None, "code": 500}}
