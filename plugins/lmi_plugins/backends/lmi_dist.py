"""The lmi-dist backend, which serves LMI-Dist's model directories on vLLM or, without vLLM, on the torch engine."""

import logging
from typing import Annotated

from pydantic import Field

from lmi_core.backend import BackendSetup
from lmi_core.configuration.properties import Names, NoEffect
from lmi_plugins.backends.vllm import VllmBackend
from lmi_plugins.backends.vllm_properties import VllmProperties
from lmi_plugins.backends.vllm_stand_in import TorchStandIn

logger = logging.getLogger(__name__)


class LmiDistProperties(VllmProperties):
    """The options of vLLM, and the additional ones of LMI-Dist."""

    cpu_offload_gb_per_gpu: Annotated[float | None, Names(aliases=("cpu_offload_gb",))] = Field(
        None, ge=0, description="Amount of the weights to keep in main memory for each GPU, in GiB."
    )
    lora_extra_vocab_size: Annotated[int | None, NoEffect("LoRA adapters that add tokens are not supported")] = None


class TorchForLmiDist(TorchStandIn):
    properties_type = LmiDistProperties


class LmiDistBackend(VllmBackend):
    name = "lmi-dist"
    aliases = ("lmi_dist",)
    auto_priority = None
    properties_type = LmiDistProperties
    on_torch = TorchForLmiDist

    def __init__(self, setup: BackendSetup[VllmProperties]) -> None:
        super().__init__(setup)
        assert isinstance(setup.properties, LmiDistProperties), setup.properties
        if setup.properties.cpu_offload_gb_per_gpu is not None:
            self.arguments["cpu_offload_gb"] = str(setup.properties.cpu_offload_gb_per_gpu)

    async def start(self) -> None:
        logger.info("lmi-dist runs on vLLM, which is installed")
        await super().start()
