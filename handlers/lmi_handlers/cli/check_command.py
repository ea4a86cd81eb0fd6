"""`lmi check`: a report of what `lmi serve` would do, with every problem that the files show."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console

from lmi_core.configuration.configuration import DEFAULT, display_value
from lmi_core.errors import ConfigurationError
from lmi_core.errors.fault import unreadable
from lmi_core.inspection.checkpoint import read_checkpoint
from lmi_core.inspection.model_folder import CONFIG, inspect_folder
from lmi_core.plugins.loading import Plugins, load_plugins
from lmi_core.remote.fetching import cached_directory, forecast
from lmi_core.serving.model import Model
from lmi_core.serving.model_plan import ModelPlan
from lmi_core.serving.own_code import code_that_runs
from lmi_core.serving_runtime import Note
from lmi_core.workers.placement import Placement
from lmi_handlers.cli.plans import launch_plans, notes_of, refuse_warnings, warnings_of
from lmi_handlers.cli.report import new_console, table
from lmi_handlers.container.declarations import Fate
from lmi_handlers.container.launch import Launch, read_launch
from lmi_handlers.container.search import Arguments

JsonObject = dict[str, Any]


def run_check(arguments: Arguments, *, strict: bool, as_json: bool, every_option: bool) -> None:
    """Print what `lmi serve` would do; list options that have their default only if `every_option`.

    Raise ConfigurationError with every reason why it would not start."""
    with redirect_stdout(sys.stderr):  # so that what model.py and plugins print is not in the report
        plugins = load_plugins(arguments.plugins_directory)
        launch = read_launch(arguments, os.environ, fetch=cached_directory)
        plans, faults = launch_plans(launch, os.environ, plugins)
        named, models = len(launch.models) > 1, list[Model]()
        for plan in plans:
            try:
                models.append(Model(plan, plugins.formatters))
            except ConfigurationError as error:
                faults.append(f"model {plan.name}: {error.message}" if named else error.message)
        found = _inspect(launch, [model.plan for model in models])
    notes = {name: [each for each in reports if isinstance(each, Note)] for name, reports in found.items()}
    of_files = [each for reports in found.values() for each in reports if not isinstance(each, Note)]
    faults = list(dict.fromkeys([*faults, *of_files]))
    report = _report(launch, models, notes, faults, plugins)
    if as_json:
        print(orjson.dumps(report, option=orjson.OPT_INDENT_2).decode())
    else:
        _print(report, launch, every_option=every_option)
    if faults:
        raise ConfigurationError("\n".join(faults))
    if strict:
        refuse_warnings(warnings_of(models, launch))


def _inspect(launch: Launch, plans: list[ModelPlan]) -> dict[str, list[str]]:
    """Return the faults of the models' files, whether or not their options are valid, and notes, by model."""
    named = len(launch.models) > 1
    planned = {plan.name: plan for plan in plans}
    every: dict[str, list[str]] = {}
    for placed in launch.models:
        found = every.setdefault(placed.name, [])
        prefix = f"model {placed.name}: " if named else ""
        plan = planned.get(placed.name)
        faults = _faults_of_folder(placed.directory) if plan is None else plan.runtime.inspect(plan.setup)
        try:
            found.extend(each if isinstance(each, Note) else prefix + each for each in faults)
        except OSError as error:
            found.append(prefix + unreadable(error))
    return every


def _faults_of_folder(directory: Path) -> Iterator[str]:
    if (directory / CONFIG).is_file():
        yield from inspect_folder(directory, read_checkpoint(directory))


def _report(
    launch: Launch, models: list[Model], notes: Mapping[str, Sequence[str]], faults: list[str], plugins: Plugins
) -> JsonObject:
    settings = [*((Fate.HONOURED.value, given) for given in launch.listening), *launch.settings.shown]
    return {
        "server": {
            "settings": [
                {"name": given.name, "value": given.value, "source": given.source, "effect": str(effect)}
                for effect, given in settings
            ],
            "warnings": list(launch.warnings),
            "notes": [*notes_of(launch), *plugins.handlers.replacements()],
            "plugins": list(plugins.others),
        },
        "models": [_model_report(model) | {"notes": [*map(str, notes[model.name])]} for model in models],
        "faults": faults,
    }


def _model_report(model: Model) -> JsonObject:
    plan = model.plan
    return {
        "name": plan.name,
        "directory": str(plan.directory),
        "backend": None if plan.backend is None else plan.backend.name,
        "reason": plan.runtime_reason,
        "engines": _engines(model),
        "schema": plan.answer_schema,
        "output_formatters": {"whole": plan.formatters.whole, "stream": plan.formatters.stream},
        "code": list(plan.code.descriptions()),
        "code_that_runs": code_that_runs(plan),
        "downloads": {
            f"option.{option}": forecast(remote) for option, remote in plan.runtime.downloads(plan.setup).items()
        },
        "options": {
            effective.key: {"value": display_value(effective.key, effective.value), "source": effective.source}
            for effective in plan.configuration.effective()
        },
        "warnings": list(model.warnings),
        "substitutions": [asdict(each) for each in model.substitutions],
    }


def _engines(model: Model) -> str | None:
    """Return the number and location of the model's engines, unless there is only one."""
    setup = model.plan.setup
    placement = model.runtime.placement(setup.replicas) if model.generates and model.backend.replicates else Placement()
    return str(placement) if placement.replicas.maximum > 1 or placement.idle else None


def _print(report: JsonObject, launch: Launch, *, every_option: bool) -> None:
    console = new_console()
    _print_launch(console, launch, report["server"])
    for model in report["models"]:
        for line in _lines(model):
            console.print(line)
        options = model["options"]
        shown = {key: each for key, each in options.items() if every_option or each["source"] != DEFAULT}
        if shown:
            rows = table("option", "value", "from")
            for key, each in shown.items():
                rows.add_row(key, each["value"], each["source"])
            console.print(rows)
        if len(shown) < len(options):
            console.print(f"  {len(options) - len(shown)} options have their default: --all shows them")


def _print_launch(console: Console, launch: Launch, server: JsonObject) -> None:
    console.print("server:")
    if server["plugins"]:
        console.print(f"  plugins, whose code runs in the server: {', '.join(server['plugins'])}")
    for warning in server["warnings"]:
        console.print(f"  warning: {warning}")
    for note in server["notes"]:
        console.print(f"  note: {note}")
    rows = table("setting", "value", "from", "effect")
    for given in launch.listening:
        rows.add_row(given.name, given.value, given.source, Fate.HONOURED.value)
    for model in launch.models:
        version = f":{model.version}" if model.version else ""
        rows.add_row("model", f"{model.name}{version}={model.directory}", model.source, Fate.HONOURED.value)
    if launch.config_file is not None:
        rows.add_row("config file", str(launch.config_file), "-f, or MODEL_SERVER_HOME", Fate.HONOURED.value)
    for fate, given in launch.settings.shown:
        rows.add_row(given.name, given.value, given.source, fate)
    for given in launch.settings.for_models:
        rows.add_row(given.name, given.value, given.source, "honoured for models that do not set it themselves")
    console.print(rows)


def _lines(model: JsonObject) -> Iterator[str]:
    """Yield the lines about a model above its options."""
    yield f"model {model['name']}: {model['directory']}"
    if model["backend"] is None:
        yield f"  model function: {model['reason']}"
    else:
        yield f"  backend: {model['backend']} ({model['reason']})"
        if model["engines"] is not None:
            yield f"  engines: {model['engines']}"
    formatters = model["output_formatters"]
    yield f"  output formatter: {formatters['whole']}; {formatters['stream']} for streams"
    if model["schema"] is not None:
        yield f"  schema on /invocations and /predictions: {model['schema']}"
    yield f"  code that runs: {model['code_that_runs']}"
    yield from (f"  {line}" for line in model["code"])
    yield from (f"  {option}: {text}" for option, text in model["downloads"].items())
    yield from (f"  warning: {warning}" for warning in model["warnings"])
    yield from (f"  note: {note}" for note in model["notes"])
