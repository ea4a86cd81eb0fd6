"""The request of KServe's inference protocol (v2): a JSON object, followed by binary data."""

from collections.abc import Collection, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt

from lmi_core.errors import InvalidPayload
from lmi_core.errors.did_you_mean import did_you_mean
from lmi_core.generation.tensors import MAX_DIMENSIONS, Tensor, TensorType
from lmi_core.handler import Call
from lmi_core.payloads.payload import check_payload, quote, read_object
from lmi_handlers.triton.tensors import from_json

HEADER_LENGTH = "Inference-Header-Content-Length"  # length of the JSON object, if binary data follows
MAX_DIGITS = 20  # of that length, because Python refuses to read thousands
MICROSECONDS = 1_000_000
# Without a sequence batcher or priority levels, Triton ignores them too.
SCHEDULING = ("sequence_id", "sequence_start", "sequence_end", "priority")


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Part(_Strict):
    name: Annotated[str, Field(min_length=1)]


class InputParameters(_Strict):
    binary_data_size: NonNegativeInt | None = Field(
        None, description="The number of bytes of this tensor after the JSON object."
    )


class InferInput(_Part):
    datatype: TensorType
    shape: list[NonNegativeInt] = Field(max_length=MAX_DIMENSIONS)
    parameters: InputParameters = Field(default_factory=InputParameters)
    data: list[Any] | None = Field(None, description="In row-major order, nested or not.")


class OutputParameters(_Strict):
    binary_data: bool | None = Field(None, description="Send this tensor as bytes after the JSON object.")


class InferOutput(_Part):
    parameters: OutputParameters = Field(default_factory=OutputParameters)


class InferPayload(_Strict):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "id": "42",
                    "inputs": [
                        {"name": "text_input", "shape": [1, 1], "datatype": "BYTES", "data": ["client input"]},
                        {"name": "max_tokens", "shape": [1, 1], "datatype": "INT32", "data": [20]},
                    ],
                    "outputs": [{"name": "text_output"}],
                }
            ]
        },
    )

    id: str | None = Field(None, description="Returned in the answer.")
    model_name: str | None = Field(None, description="Must be the name in the path, if given.")
    parameters: dict[str, Any] = Field(default_factory=dict, description="`binary_data_output` and `timeout`.")
    inputs: Annotated[list[InferInput], Field(min_length=1)]
    outputs: list[InferOutput] | None = Field(None, description="The tensors to return. Default: all.")


class InferRequest:
    """A parsed request: its input tensors, the outputs that it selects and their encoding, and its parameters."""

    def __init__(self, call: Call) -> None:
        """Parse the call. Raise InvalidPayload if a field or the binary data are invalid."""
        described, data = _split_body(call)
        payload = check_payload(described, InferPayload)
        served = call.path_parameters["model"]
        if payload.model_name not in (served, None):
            raise InvalidPayload(f"`model_name` must be {served}, as in the path. Given: {quote(payload.model_name)}")
        self.id = payload.id
        self.inputs = _tensors(payload.inputs, data)
        self.parameters = dict(payload.parameters)
        binary = self.parameters.pop("binary_data_output", False)
        if not isinstance(binary, bool):
            raise InvalidPayload(f"`binary_data_output` must be a valid boolean. Given: {quote(binary)}")
        self.binary_by_default = binary
        self.timeout = _timeout(self.parameters)
        for name in SCHEDULING:
            if not self.parameters.get(name, True):
                del self.parameters[name]  # neutral values, which clients send; others are reported as ignored
        selected = {output.name: output.parameters.binary_data for output in payload.outputs or ()}
        self.outputs = selected or None  # with `binary_data` of each, if given; None selects all

    def check_outputs(self, known: Collection[str]) -> None:
        """Raise InvalidPayload if the request selects an unknown output."""
        for name in self.outputs or ():
            if name not in known:
                raise InvalidPayload(
                    f"`outputs` names `{name}`, which is not an output of this request.{did_you_mean(name, known)} "
                    f"Known: {', '.join(known)}"
                )

    def select(self, outputs: Mapping[str, Tensor]) -> dict[str, tuple[Tensor, bool]]:
        """Return the selected outputs in the request's order, each with whether to send it as binary data."""
        if self.outputs is None:
            return {name: (tensor, self.binary_by_default) for name, tensor in outputs.items()}
        return {
            name: (outputs[name], self.binary_by_default if binary is None else binary)
            for name, binary in self.outputs.items()
            if name in outputs
        }


def _split_body(call: Call) -> tuple[dict[str, Any], bytes]:
    """Return the JSON object and the bytes after it. Raise InvalidPayload if the length in the header is wrong."""
    given = call.headers.get(HEADER_LENGTH)
    if given is None:
        return call.json_object(), b""
    if not (given.isascii() and given.isdigit() and len(given) <= MAX_DIGITS and 0 < int(given) <= len(call.body)):
        raise InvalidPayload(
            f"{HEADER_LENGTH} must be from 1 to the body's length, {len(call.body)}. Given: {quote(given)}"
        )
    return read_object(call.body[: int(given)]), call.body[int(given) :]


def _tensors(inputs: list[InferInput], data: bytes) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    place = 0
    for each in inputs:
        if each.name in tensors:
            raise InvalidPayload(f"`inputs` must contain each tensor once. Given twice: `{each.name}`")
        size = each.parameters.binary_data_size
        if (each.data is None) == (size is None):
            raise InvalidPayload(f"`{each.name}` must have either `data` or `parameters.binary_data_size`")
        tensors[each.name] = _tensor(each, data[place : place + (size or 0)])
        place += size or 0
    if place != len(data):
        raise InvalidPayload(f"the tensors' binary data must be {place} bytes in all. Given: {len(data)}")
    return tensors


def _tensor(each: InferInput, data: bytes) -> Tensor:
    if each.data is not None:
        return from_json(each.name, each.datatype, each.shape, each.data)
    try:
        return Tensor(each.datatype, tuple(each.shape), data)
    except ValueError as error:
        raise InvalidPayload(f"`{each.name}`: {error}") from None


def _timeout(parameters: dict[str, Any]) -> float | None:
    microseconds = parameters.pop("timeout", 0)
    if type(microseconds) is not int or microseconds < 0:
        raise InvalidPayload(f"`timeout` must be a number of microseconds, or 0 for none. Given: {quote(microseconds)}")
    return microseconds / MICROSECONDS or None
