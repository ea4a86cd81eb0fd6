"""The rules for pages of other web sites, from the environment and config.properties."""

from collections.abc import Sequence

from lmi_core.configuration.configuration import Given
from lmi_core.configuration.host_patterns import ANY
from lmi_core.errors import ConfigurationError
from lmi_handlers.access.cross_origin import METHODS, CrossOrigin, Origin, is_token
from lmi_handlers.container.server_keys import CORS_CREDENTIALS, CORS_HEADERS, CORS_METHODS, CORS_ORIGIN
from lmi_handlers.container.settings import Settings, is_true


def choose_cross_origin(settings: Settings) -> CrossOrigin | None:
    """Return the rules; None if no origin is given. Raise ConfigurationError if a value is invalid."""
    origins, methods, headers = (settings.get(name) for name in (CORS_ORIGIN, CORS_METHODS, CORS_HEADERS))
    credentials = settings.get(CORS_CREDENTIALS)
    if origins is None:
        for given in filter(None, (methods, headers, credentials)):
            settings.warnings.append(f"{given.source}: {given.name} has no effect: there is no {CORS_ORIGIN}")
        return None
    admitted = _origins(origins)
    if (with_credentials := credentials is not None and is_true(credentials)) and admitted is None:
        raise ConfigurationError(
            f"{CORS_CREDENTIALS}=true needs the origins that may use credentials: list them in {CORS_ORIGIN}. Given: "
            f"{origins.value}"
        )
    return CrossOrigin(admitted, _methods(methods), _headers(headers), with_credentials)


def _origins(given: Given) -> list[Origin] | None:
    items = _items(given)
    if ANY in items:
        return None
    found = []
    for item in items:
        try:
            found.append(Origin.parse_pattern(item))
        except ValueError as error:
            raise ConfigurationError(f"{given.source}: {given.name}: {error}. Given: {item}") from None
    return found


def _methods(given: Given | None) -> Sequence[str]:
    if given is None or ANY in _items(given):
        return METHODS
    return [item.upper() for item in _tokens(given)]


def _headers(given: Given | None) -> Sequence[str] | None:
    if given is None or ANY in _items(given):
        return None
    return [item.lower() for item in _tokens(given)]


def _tokens(given: Given) -> list[str]:
    items = _items(given)
    for item in items:
        if not is_token(item):
            raise ConfigurationError(
                f"{given.source}: {given.name} must be names separated by commas, or {ANY} for all. Given: {item}"
            )
    return items


def _items(given: Given) -> list[str]:
    return [item.strip() for item in given.value.split(",") if item.strip()]
