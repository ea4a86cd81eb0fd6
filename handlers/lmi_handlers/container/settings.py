"""Server settings from the environment and config.properties."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from lmi_core.configuration import java_properties
from lmi_core.configuration.configuration import Setting
from lmi_core.configuration.properties import ServerProperties, environment_variable, keys_of
from lmi_core.errors import ConfigurationError
from lmi_core.errors.did_you_mean import did_you_mean
from lmi_handlers.container.declarations import Declared, Fate
from lmi_handlers.container.server_keys import SERVER_KEYS
from lmi_handlers.container.variables import VARIABLES

FILE_NAME = "config.properties"
KNOWN_PREFIXES = ("SAGEMAKER_", "DJL_")  # undeclared variables with these prefixes cause a warning

_KEYS = {key.name: key for key in SERVER_KEYS}
_VARIABLES = {each.name: each for each in VARIABLES}
_KEY_VARIABLES = {environment_variable(key.name): key for key in SERVER_KEYS}
_MODEL_KEYS = {name: key.key for key in keys_of(ServerProperties) for name in (key.key, *key.aliases)}


class Settings:
    """The effective server settings, the defaults for all models, and warnings about ineffective settings."""

    def __init__(
        self, environment: Mapping[str, str], file: Iterable[Setting] = (), defaults: Sequence[Setting] = ()
    ) -> None:
        """`defaults` are keys for all models that file and environment override."""
        self.warnings: list[str] = []
        self._of_variables: list[Setting] = []
        self._of_file: list[Setting] = []
        self._defaults = defaults
        self.shown: list[tuple[str, Setting]] = []  # settings and their effects, for `lmi check`
        self._values: dict[str, Setting] = {}
        for name, value in sorted(environment.items()):
            known = _declaration(name)
            if value.strip() and (name.startswith(KNOWN_PREFIXES) or known):
                self._take(known, Setting(name, value.strip(), f"environment {name}"))
        for given in file:
            if key := _MODEL_KEYS.get(given.name):
                self._of_file.append(given._replace(name=key))
            elif given.name in _KEYS:
                self._take(_KEYS[given.name], given)
            else:
                self._warn_of_unknown(given, _KEYS.keys() | _MODEL_KEYS.keys())

    def get(self, name: str) -> Setting | None:
        """Return the effective value of an honoured key or variable; None if it is not set."""
        assert name in _KEYS or name in _VARIABLES, f"{name} is not declared"
        return self._values.get(name)

    def is_on(self, name: str, default: bool = False) -> bool:
        """Return whether a setting is true. Raise ConfigurationError if it is neither true nor false."""
        given = self.get(name)
        if given is None:
            return default
        if (value := given.value.lower()) not in ("true", "false"):
            raise ConfigurationError(f"{given.source}: {given.name} must be true or false. Given: {given.value}")
        return value == "true"

    @property
    def for_models(self) -> list[Setting]:
        """The defaults for keys that a model's own file and environment do not set; the last of equal keys wins."""
        return [*self._defaults, *self._of_file, *self._of_variables]

    def _take(self, known: Declared | None, given: Setting) -> None:
        """Apply a setting unless an earlier source set it, or warn that it has no effect.

        Raise ConfigurationError if it is refused.
        """
        if known is None:
            self._warn_of_unknown(given, _VARIABLES)
            return
        fate = known.fate_of(given.value)
        given = given._replace(name=known.name)
        shown = given._replace(value=known.display(given.value))
        if fate is Fate.REFUSED:
            raise ConfigurationError(f"{_origin(given)} is refused: {known.meaning}. Given: {shown.value}")
        if fate is Fate.IGNORED:
            self.warnings.append(f"{_origin(given)} has no effect: {known.meaning}. Given: {shown.value}")
        if fate is Fate.HONOURED:
            used = self._values.setdefault(known.name, given)
            if used.value != given.value:
                self.warnings.append(
                    f"{known.name}: the value from {given.source} is overridden by the one from {used.source}"
                )
            if used is not given:
                return
            self._of_variables += _convert(known, given)
        self.shown.append((f"{fate.value}: {known.meaning}" if fate is Fate.NOTED else fate.value, shown))

    def _warn_of_unknown(self, given: Setting, known: Iterable[str]) -> None:
        variable = environment_variable(given.name)
        if variable in _VARIABLES and _VARIABLES[variable].fate_of(given.value) is Fate.HONOURED:
            hint = f" Set the variable {variable} instead"  # it is read before this file
        else:
            hint = did_you_mean(given.name, known)
        self.warnings.append(f"{_origin(given)} is not known.{hint}")


def read_file(path: Path) -> list[Setting]:
    """Return the entries of a config.properties, the last for each key.

    Raise ConfigurationError if it cannot be read.
    """
    try:
        text = path.read_bytes().decode()
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read as a {FILE_NAME}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} must be UTF-8 text: {error}") from None
    entries = java_properties.parse(text, str(path))
    given = {entry.key: Setting(entry.key, entry.value.strip(), f"{path}:{entry.line}") for entry in entries}
    return [each for each in given.values() if each.value]


def for_models(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for models' configurations, without the server's own variables."""
    return {name: value for name, value in environment.items() if _declaration(name) is None}


def _declaration(variable: str) -> Declared | None:
    """Return the declaration of a variable, ignoring the case of `SERVING_*` as DJLServing does."""
    folded = variable.upper() if variable.upper().startswith("SERVING_") else variable
    return _VARIABLES.get(folded) or _KEY_VARIABLES.get(folded)


def _origin(given: Setting) -> str:
    """Return the name of a setting with its source, unless the source is the variable itself."""
    return given.source if given.source.endswith(given.name) else f"{given.source}: {given.name}"


def _convert(known: Declared, given: Setting) -> Iterator[Setting]:
    value = given.value
    if known.factor > 1:
        if not value.isdecimal():
            raise ConfigurationError(f"{given.source} must be an integer no less than 0. Given: {value}")
        if int(value) == 0:  # in a batch transform, 0 means no limit
            return
        value = str(int(value) * known.factor)
    yield from (Setting(option, value, given.source) for option in known.options)
