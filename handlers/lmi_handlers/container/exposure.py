"""Warnings about access from other hosts that may be unintended."""

from collections.abc import Iterator

from lmi_core.configuration.host_patterns import is_loopback
from lmi_handlers.container.launch import Launch


def exposures(launch: Launch) -> Iterator[str]:
    """Yield a line for each action that other hosts can perform without a key or a token."""
    host, _ = launch.address
    access = launch.access
    beyond = not is_loopback(host.value)
    if beyond and access.api_keys is None:
        yield (
            f"whoever can reach {host.value} ({host.source}) may generate, without a key: api_keys_file asks for one, "
            "and --host 127.0.0.1 is for this host alone"
        )
    if access.api_keys is None and access.cross_origin is not None and access.cross_origin.origins is None:
        yield (
            "every web page in a browser that can reach the server may generate, without a key, as "
            "cors_allowed_origin=* says: api_keys_file asks for one"
        )
    if access.management_token is not None:
        return
    own = access.management_address
    if own is not None and not own.is_for_this_host:
        yield f"whoever can reach {own} may load models and run their code: management_token asks for a token"
    elif own is None and beyond and access.multi_model:
        yield "whoever can reach the server may load models and run their code, as SAGEMAKER_MULTI_MODEL says"
    elif own is None and beyond and access.open_management:
        yield (
            "whoever can reach the server may load models and adapters, and run their code, as "
            "open_management=true says: management_token asks for a token"
        )
