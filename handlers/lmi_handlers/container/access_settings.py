"""The access rules and the limits of connections, from the environment and config.properties."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lmi_core.configuration.configuration import Setting
from lmi_core.configuration.host_patterns import ANY
from lmi_core.errors import ConfigurationError
from lmi_handlers.access import api_keys
from lmi_handlers.access.api_keys import ApiKeys, KeyLimits
from lmi_handlers.access.certificate import Certificate
from lmi_handlers.access.credentials import Secret, TokenFile
from lmi_handlers.access.cross_origin import METHODS, CrossOrigin, Origin, is_token
from lmi_handlers.access.options import AccessOptions
from lmi_handlers.container.address import Address, choose_management, is_https
from lmi_handlers.container.settings import Settings
from lmi_handlers.container.variables import MULTI_MODEL
from lmi_handlers.http.connections.limits import ConnectionLimits

COUNTS = ("max_connections", "min_transfer_rate", "max_pending_body_bytes")
TIMES = ("header_timeout", "body_timeout", "write_timeout", "keep_alive_timeout")
OPEN_MANAGEMENT = "open_management"  # a key of serving.properties; its variable and default also apply to the server
OPEN_VARIABLE = "SERVING_OPEN_MANAGEMENT"


def choose_limits(settings: Settings) -> ConnectionLimits:
    """Return the limits, by default those of ConnectionLimits. Raise ConfigurationError if a value is invalid."""
    given: dict[str, Any] = {name: count(found) for name in COUNTS if (found := settings.get(name))}
    given |= {name: _seconds(found) for name in TIMES if (found := settings.get(name))}
    return ConnectionLimits(**given)


def count(given: Setting) -> int:
    """Return the value as a number of at least 1. Raise ConfigurationError if it is not one."""
    return api_keys.count(f"{given.source}: {given.name}", given.value)


def _seconds(given: Setting) -> float:
    try:
        seconds = float(given.value)
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds > 0):
        raise ConfigurationError(
            f"{given.source}: {given.name} must be a number of seconds greater than 0. Given: {given.value}"
        )
    return seconds


def choose_cross_origin(settings: Settings) -> CrossOrigin | None:
    """Return the rules; None if no origin is given. Raise ConfigurationError if a value is invalid."""
    origins, methods, headers = (
        settings.get(name) for name in ("cors_allowed_origin", "cors_allowed_methods", "cors_allowed_headers")
    )
    credentials = settings.get("cors_allow_credentials")
    if origins is None:
        for given in filter(None, (methods, headers, credentials)):
            settings.warnings.append(f"{given.source}: {given.name} has no effect: there is no cors_allowed_origin")
        return None
    admitted = _origins(origins)
    if (with_credentials := settings.is_on("cors_allow_credentials")) and admitted is None:
        raise ConfigurationError(
            "cors_allow_credentials=true needs the origins that may use credentials: list them in cors_allowed_origin. "
            f"Given: {origins.value}"
        )
    names = _names(headers)
    return CrossOrigin(
        admitted,
        tuple(each.upper() for each in _names(methods) or METHODS),
        None if names is None else [each.lower() for each in names],
        with_credentials,
    )


def _origins(given: Setting) -> list[Origin] | None:
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


def _names(given: Setting | None) -> list[str] | None:
    """Return the names of methods or headers; None for all."""
    if given is None or ANY in (items := _items(given)):
        return None
    for item in items:
        if not is_token(item):
            raise ConfigurationError(
                f"{given.source}: {given.name} must be names separated by commas, or {ANY} for all. Given: {item}"
            )
    return items


def _items(given: Setting) -> list[str]:
    return [item.strip() for item in given.value.split(",") if item.strip()]


def choose_access(settings: Settings, environment: Mapping[str, str], inference: Address) -> AccessOptions:
    """Return the rules, by default without keys. Raise ConfigurationError if a value or a file is invalid."""
    multi_model = environment.get(MULTI_MODEL, "")
    management, certificate = choose_management(settings, inference), _certificate(settings)
    if management is not None and management.is_secure and certificate is None:
        raise ConfigurationError("management_address asks for HTTPS, which needs certificate_file")
    # The server's defaults for all models may allow other hosts to use management routes.
    values = [given.value for given in settings.for_models if given.name == OPEN_MANAGEMENT]
    values.append(environment.get(OPEN_VARIABLE, ""))
    return AccessOptions(
        certificate=certificate,
        api_keys=_keys(settings),
        metrics_need_key=settings.is_on("metrics_need_key"),
        management_address=management,
        management_token=_token(settings),
        open_management=any(value.strip().lower() == "true" for value in values),
        cross_origin=choose_cross_origin(settings),
        multi_model=multi_model.strip().lower() == "true",
    )


def _certificate(settings: Settings) -> Certificate | None:
    certificate, private_key = settings.get("certificate_file"), settings.get("private_key_file")
    address = settings.get("inference_address")
    if certificate is None or private_key is None:
        if certificate is not None or private_key is not None:
            raise ConfigurationError("certificate_file and private_key_file are needed together")
        if address is not None and is_https(address):
            raise ConfigurationError(
                f"{address.source}: {address.name} asks for HTTPS, which needs certificate_file and "
                f"private_key_file. Given: {address.value}"
            )
        return None
    if address is not None and not is_https(address):
        raise ConfigurationError(
            f"{address.source}: {address.name} must be https://HOST:PORT, because there is a certificate_file. Given: "
            f"{address.value}"
        )
    found = Certificate(Path(certificate.value), Path(private_key.value))
    if (warning := found.warning) is not None:
        settings.warnings.append(warning)
    return found


def _keys(settings: Settings) -> ApiKeys | None:
    given, file = settings.get("api_keys"), settings.get("api_keys_file")
    requests, running = settings.get("key_requests_per_minute"), settings.get("key_max_concurrent_requests")
    if given is None and file is None:
        for limit in filter(None, (requests, running)):
            settings.warnings.append(
                f"{limit.source}: {limit.name} has no effect: there are no API keys (api_keys_file)"
            )
        return None
    lines = [] if given is None else [each for each in given.value.split(",") if each.strip()]
    limits = KeyLimits(None if requests is None else count(requests), None if running is None else count(running))
    keys = ApiKeys(lines, None if file is None else Path(file.value), limits)
    settings.warnings += keys.warnings
    return keys


def _token(settings: Settings) -> Secret | TokenFile | None:
    token, file = settings.get("management_token"), settings.get("management_token_file")
    if token is not None and file is not None:
        raise ConfigurationError("management_token and management_token_file cannot be used together")
    if file is not None:
        return TokenFile(Path(file.value))
    return None if token is None else Secret.of(token.value)
