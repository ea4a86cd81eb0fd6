"""The fields of a page of a list, by DJLServing's names."""

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, NonNegativeInt

DEFAULT_LIMIT = 100
MAX_LIMIT = 10_000


def _limit(value: object) -> object:
    return DEFAULT_LIMIT if value in ("", "-1", -1) else value


class Page(BaseModel):
    """The fields of a page of a list."""

    model_config = ConfigDict(extra="forbid")

    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT), BeforeValidator(_limit)] = Field(
        DEFAULT_LIMIT, description="The maximum number of entries to list; -1 means the default."
    )
    next_page_token: Annotated[NonNegativeInt, BeforeValidator(lambda value: value or 0)] = Field(
        0, description="The `nextPageToken` of the page before; empty for the first."
    )
