"""The generation parameters of the vLLM backend."""

from pydantic import Field

from lmi_core.generation.parameters import ExtendedParameters
from lmi_plugins.vllm_engine.requests.vllm_fields import VllmFields


class VllmParameters(ExtendedParameters):
    """The generation parameters of LMI's vLLM backend, with its bounds and defaults."""

    top_k: int = Field(
        -1, ge=-1, description="Top-k sampling: the number of most likely tokens to keep; 0 and -1 mean all."
    )
    temperature: float = Field(
        1.0, ge=0, le=2, description="Sampling temperature, which divides the logits; 0 means greedy decoding."
    )


class VllmEngineParameters(VllmParameters):
    """Parameters of the vLLM backend, including those that no other engine has."""

    vllm_fields: VllmFields | None = Field(
        None, description="Parameters that only vLLM has, under the names of its server's fields."
    )
