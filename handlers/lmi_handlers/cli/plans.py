"""The plans of models, for `lmi serve` and `lmi check`, and their warnings."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from lmi_core.configuration.configuration import Setting
from lmi_core.configuration.host_patterns import is_loopback
from lmi_core.configuration.model_directory import find_model_directories
from lmi_core.errors import ConfigurationError
from lmi_core.errors.fault import unreadable
from lmi_core.plugins.loading import Plugins
from lmi_core.registry.dispatcher import check_names
from lmi_core.serving.model import Model
from lmi_core.serving.model_plan import ModelPlan, read_plan
from lmi_handlers.container.launch import Launch
from lmi_handlers.container.search import PlacedModel
from lmi_handlers.container.settings import for_models


def launch_plans(launch: Launch, environment: Mapping[str, str], plugins: Plugins) -> tuple[list[ModelPlan], list[str]]:
    """Return a plan for each model to serve, and the problems of others. Raise ConfigurationError if names clash."""
    plans, errors = _read_plans(launch.models, environment, plugins, launch.settings.for_models)
    return plans, [*launch.faults, *errors]


def read_plans(directory: Path, environment: Mapping[str, str], plugins: Plugins) -> list[ModelPlan]:
    """Return a plan for each model under the directory, ignoring server settings in the environment.

    Raise ConfigurationError if one cannot be created.
    """
    found = find_model_directories(directory, environment)
    models = [PlacedModel(name, path, str(directory)) for name, path in found.items()]
    plans, errors = _read_plans(models, environment, plugins)
    if errors:
        raise ConfigurationError("\n".join(errors))
    return plans


def _read_plans(
    models: Sequence[PlacedModel], environment: Mapping[str, str], plugins: Plugins, common: Sequence[Setting] = ()
) -> tuple[list[ModelPlan], list[str]]:
    plans, errors, variables = [], [], for_models(environment)
    for model in models:
        try:
            plan = read_plan(model.name, model.directory, variables, plugins, common, model.version, model.overrides)
            plans.append(plan)
        except (ConfigurationError, OSError) as error:
            reason = error.message if isinstance(error, ConfigurationError) else unreadable(error)
            errors.append(f"model {model.name}: {reason}" if len(models) > 1 else reason)
    if not errors:
        check_names(plans)
    return plans, errors


def warnings_of(models: Sequence[Model], launch: Launch) -> list[str]:
    """Return all warnings, those of models with their names."""
    return [*launch.warnings, *(f"model {model.name}: {warning}" for model in models for warning in model.warnings)]


def refuse_warnings(warnings: Sequence[str]) -> None:
    """Raise ConfigurationError with all warnings, if there are any, for `--strict`."""
    if warnings:
        raise ConfigurationError("\n".join(["--strict makes all warnings errors:", *warnings]))


def notes_of(launch: Launch) -> Iterator[str]:
    """Yield facts about the server that the operator may not want, and that `--strict` does not turn into errors."""
    access = launch.access
    if access.certificate is not None and (note := access.certificate.note) is not None:
        yield note
    # Actions that other hosts can perform without a key or a token
    host, _ = launch.address
    beyond = not is_loopback(host.value)
    if beyond and access.api_keys is None:
        yield (
            f"anyone who can reach {host.value} ({host.source}) can generate without a key: set api_keys_file to "
            f"require one, or --host 127.0.0.1 to admit only this host"
        )
    if access.api_keys is None and access.cross_origin is not None and access.cross_origin.origins is None:
        yield (
            "every web page in a browser that can reach the server can generate without a key, because of "
            "cors_allowed_origin=*: set api_keys_file to require one"
        )
    if access.management_token is not None:
        return
    own = access.management_address
    if own is not None and not own.is_for_this_host:
        yield f"anyone who can reach {own} can load models and run their code: set management_token to require a token"
    elif own is None and beyond and access.multi_model:
        yield "anyone who can reach the server can load models and run their code, because of SAGEMAKER_MULTI_MODEL"
    elif own is None and beyond and access.open_management:
        yield (
            "anyone who can reach the server can load models and adapters, and run their code, because of "
            "open_management=true: set management_token to require a token"
        )
