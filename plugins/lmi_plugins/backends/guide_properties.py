"""The options that limit the cost of structured output."""

from pydantic import Field, PositiveInt

from lmi_core.configuration.properties import ModelProperties
from lmi_plugins.torch_engine.messages.guide_limits import GuideLimits


class GuideProperties(ModelProperties):
    """The limits of one schema, regular expression, grammar, list of choices or structural tag."""

    max_guide_size: PositiveInt = Field(
        2**20,
        description="Maximum size of a structured-output constraint (schema, regular expression, grammar, list of "
        "choices or structural tag), in bytes; bounded repetitions in regular expressions count in expanded form.",
    )
    guide_compile_timeout: PositiveInt = Field(
        20, description="Maximum CPU time for compiling a constraint, in seconds."
    )
    guide_memory_limit: PositiveInt = Field(
        512 * 2**20, description="Maximum memory for compiling a constraint, in bytes."
    )
    guide_mask_timeout: PositiveInt = Field(
        50,
        description="Maximum CPU time for computing the tokens that a constraint allows next in a sequence, in "
        "milliseconds; a request that needs more ends with an error.",
    )

    @property
    def guide_limits(self) -> GuideLimits:
        return GuideLimits(
            size=self.max_guide_size,
            compile_seconds=self.guide_compile_timeout,
            memory=self.guide_memory_limit,
            mask_seconds=self.guide_mask_timeout / 1000,
        )
