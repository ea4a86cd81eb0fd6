"""The access rules, from the environment and config.properties."""

from collections.abc import Mapping
from pathlib import Path

from lmi_core.errors import ConfigurationError
from lmi_handlers.access.api_keys import ApiKeys, KeyLimits
from lmi_handlers.access.certificate import Certificate
from lmi_handlers.access.credentials import Secret
from lmi_handlers.access.options import AccessOptions
from lmi_handlers.access.token_file import TokenFile
from lmi_handlers.container.address import Address, choose_management, is_https
from lmi_handlers.container.connection_limits import count
from lmi_handlers.container.cross_origin_settings import choose_cross_origin
from lmi_handlers.container.server_keys import (
    API_KEYS,
    API_KEYS_FILE,
    CERTIFICATE_FILE,
    INFERENCE_ADDRESS,
    KEY_REQUESTS,
    KEY_RUNNING,
    MANAGEMENT_ADDRESS,
    MANAGEMENT_TOKEN,
    MANAGEMENT_TOKEN_FILE,
    METRICS_NEED_KEY,
    PRIVATE_KEY_FILE,
)
from lmi_handlers.container.settings import Settings, is_true
from lmi_handlers.container.variables import MULTI_MODEL

OPEN_MANAGEMENT = "open_management"  # a key of serving.properties; its variable and default also apply to the server
OPEN_VARIABLE = "SERVING_OPEN_MANAGEMENT"


def choose_access(settings: Settings, environment: Mapping[str, str], inference: Address) -> AccessOptions:
    """Return the rules, by default without keys. Raise ConfigurationError if a value or a file is invalid."""
    metrics, multi_model = settings.get(METRICS_NEED_KEY), environment.get(MULTI_MODEL, "")
    management, certificate = choose_management(settings, inference), _certificate(settings)
    if management is not None and management.is_secure and certificate is None:
        raise ConfigurationError(f"{MANAGEMENT_ADDRESS} asks for HTTPS, which needs {CERTIFICATE_FILE}")
    # The server's defaults for all models may allow other hosts to use management routes.
    values = [given.value for given in settings.for_models if given.name == OPEN_MANAGEMENT]
    values.append(environment.get(OPEN_VARIABLE, ""))
    return AccessOptions(
        certificate=certificate,
        api_keys=_keys(settings),
        metrics_need_key=metrics is not None and is_true(metrics),
        management_address=management,
        management_token=_token(settings),
        open_management=any(value.strip().lower() == "true" for value in values),
        cross_origin=choose_cross_origin(settings),
        multi_model=multi_model.strip().lower() == "true",
    )


def _certificate(settings: Settings) -> Certificate | None:
    certificate, private_key = settings.get(CERTIFICATE_FILE), settings.get(PRIVATE_KEY_FILE)
    address = settings.get(INFERENCE_ADDRESS)
    if certificate is None or private_key is None:
        if certificate is not None or private_key is not None:
            raise ConfigurationError(f"{CERTIFICATE_FILE} and {PRIVATE_KEY_FILE} are needed together")
        if address is not None and is_https(address):
            raise ConfigurationError(
                f"{address.source}: {address.name} asks for HTTPS, which needs {CERTIFICATE_FILE} and "
                f"{PRIVATE_KEY_FILE}. Given: {address.value}"
            )
        return None
    if address is not None and not is_https(address):
        raise ConfigurationError(
            f"{address.source}: {address.name} must be https://HOST:PORT, because there is a {CERTIFICATE_FILE}. "
            f"Given: "
            f"{address.value}"
        )
    return Certificate(Path(certificate.value), Path(private_key.value))


def _keys(settings: Settings) -> ApiKeys | None:
    given, file = settings.get(API_KEYS), settings.get(API_KEYS_FILE)
    requests, running = settings.get(KEY_REQUESTS), settings.get(KEY_RUNNING)
    if given is None and file is None:
        for limit in filter(None, (requests, running)):
            settings.warnings.append(
                f"{limit.source}: {limit.name} has no effect: there are no API keys (api_keys_file)"
            )
        return None
    lines = [] if given is None else [each for each in given.value.split(",") if each.strip()]
    limits = KeyLimits(None if requests is None else count(requests), None if running is None else count(running))
    return ApiKeys(lines, None if file is None else Path(file.value), limits)


def _token(settings: Settings) -> Secret | TokenFile | None:
    token, file = settings.get(MANAGEMENT_TOKEN), settings.get(MANAGEMENT_TOKEN_FILE)
    if token is not None and file is not None:
        raise ConfigurationError(f"{MANAGEMENT_TOKEN} and {MANAGEMENT_TOKEN_FILE} cannot be used together")
    if file is not None:
        return TokenFile(Path(file.value))
    return None if token is None else Secret.of(token.value)
