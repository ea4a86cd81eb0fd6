"""Loading of `serving.properties` and environment variables into declared, typed properties."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple, Self, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from lmi_core.configuration import java_properties
from lmi_core.configuration.cache import DOWNLOAD_VARIABLE
from lmi_core.configuration.model_directory import PROPERTIES_FILE
from lmi_core.configuration.properties import OPTION_PREFIX, DeclaredKey, Properties, environment_variable, keys_of
from lmi_core.errors import ConfigurationError
from lmi_core.errors.did_you_mean import stray_text_hint
from lmi_core.errors.fault import unreadable

DEFAULT = "default"  # the source of a default value
_WORD = re.compile(r"[\w.-]+", re.ASCII)  # part of a value; it may be a name spelled in different letters
_SECRET = re.compile(r"(?:token|password|secret|api_?key)$", re.IGNORECASE)
NEAR = 0.65  # the minimum similarity of a suggested key

P = TypeVar("P", bound=Properties)


class Setting(NamedTuple):
    """A given value and its origin: a key of the file or an environment variable."""

    name: str
    value: str
    source: str


class EffectiveValue(NamedTuple):
    """A key's value in effect, given or default, and its source."""

    key: str
    value: str
    source: str


class Configuration:
    """The given values and the declared keys; call `explain_unread` after loading every type.

    `errors` and `warnings` collect one line per key, to be reported together.
    """

    def __init__(
        self,
        file: Iterable[Setting],
        environment: Iterable[Setting],
        common: Iterable[Setting] = (),
        overrides: Iterable[Setting] = (),
    ) -> None:
        self.errors: list[str] = []
        self.warnings: list[str] = []
        self._file = self._last_of_each(file)
        given = {_normalize_case(each.name): each for each in environment if each.value}
        # Not a property, because it applies before any model is known.
        self._environment = {name: each for name, each in given.items() if name != DOWNLOAD_VARIABLE}
        self._common = self._last_of_each(common)
        self._overrides = {each.name: each for each in overrides}
        self._keys: dict[str, str] = {}  # from each known spelling of a key to the key
        self._variables: dict[str, str] = {}  # from each known environment variable to its key
        self._further: set[str] = set()  # keys of types that were not loaded
        self._effective: dict[str, EffectiveValue] = {}

    @classmethod
    def read(
        cls,
        directory: Path,
        environment: Mapping[str, str],
        common: Iterable[Setting] = (),
        overrides: Iterable[Setting] = (),
    ) -> Self:
        """Read the values for a model directory, with or without a `serving.properties`.

        `common` holds the server's keys for all models, which apply if neither file nor environment sets them;
        `overrides` take precedence over everything.
        """
        variables = (Setting(name, value.strip(), f"environment {name}") for name, value in environment.items())
        return cls(_read_file(directory / PROPERTIES_FILE), variables, common, overrides)

    def load(self, properties_type: type[P]) -> P:
        """Return the properties; an invalid value adds to `errors` and is replaced by the default.

        Raise ConfigurationError immediately if a required key is missing.
        """
        keys = keys_of(properties_type)
        given = {key.field: found for key in keys if (found := self._find(key))}
        for key in keys:
            self._register(key.key, key.aliases, key.environment)
            self._effective[key.key] = EffectiveValue(key.key, key.default, DEFAULT)
            if key.field in given:
                self._record(key.key, given[key.field])
        properties = self._validate(properties_type, keys, given)
        self.warnings += [
            f"{given[key.field].source}: {key.key} has no effect: {reason}. Given: {given[key.field].value}"
            for key in keys
            if key.field in given and (reason := key.why_without_effect(properties)) is not None
        ]
        return properties

    def raise_errors(self) -> None:
        """Raise ConfigurationError with every error so far, if there is any."""
        if self.errors:
            raise ConfigurationError("\n".join(self.errors))

    def derive(self, key: str, value: str, reason: str) -> None:
        """Record the value of a key that follows from other keys."""
        self._effective[key] = EffectiveValue(key, value, reason)

    def imply(self, key: str, value: str, by: str) -> None:
        """Set a key that follows from another one, unless it is given itself; a value implied by an override is an
        override too.
        """
        source = self.source(by)
        if key.removeprefix(OPTION_PREFIX) in self._overrides:
            return
        implied = self._overrides if source in {each.source for each in self._overrides.values()} else self._common
        implied.setdefault(key, Setting(key, value, f"{by} ({source})"))

    def source(self, key: str) -> str:
        """Return the source of a declared key's value in effect."""
        return self._effective[key].source

    def undeclared_options(self) -> set[str]:
        """Return the given `option.*` keys that no loaded type declares, without prefix."""
        in_file = {name for name in (*self._file, *self._overrides) if name not in self._keys}
        variables = {name for name in self._environment if name not in self._variables}
        in_environment = {
            OPTION_PREFIX + name.removeprefix("OPTION_").lower() for name in variables if "OPTION_" in name
        }
        return {key.removeprefix(OPTION_PREFIX) for key in in_file | in_environment if key.startswith(OPTION_PREFIX)}

    def pass_through(self, accepted: Collection[str]) -> dict[str, str]:
        """Return the accepted `option.*` keys that are given and that no loaded type declares, as raw text."""
        arguments = {}
        for key in sorted({OPTION_PREFIX + name for name in accepted} - self._keys.keys()):
            variable = environment_variable(key)
            self._register(key, (), (variable,))
            if given := self._override((key,)) or self._file.get(key) or self._environment.get(variable):
                self._record(key, given)
                arguments[key.removeprefix(OPTION_PREFIX)] = given.value
        return arguments

    @property
    def has_unread(self) -> bool:
        """Whether a key or variable is given that no declared type reads."""
        in_file = [name for name in (*self._file, *self._overrides) if name not in self._keys]
        return bool(in_file or self._unread_variables())

    def explain_unread(self, known: Mapping[str, str]) -> None:
        """Add a warning for each unused key and each unused `OPTION_*` or `SERVING_*` variable.

        `known` gives the reason for each known key that has no effect for this model. An unknown key among the
        overrides is an error, because overrides are written for this server.
        """
        self._further |= known.keys()
        for name, each in self._overrides.items():
            if name not in self._keys and name not in known:
                self.errors.append(f"{each.source}: {each.name} is not a known key{self._hint(each)}")
        given = (*self._file.items(), *((name, each) for name, each in self._overrides.items() if name in known))
        in_file = [(name, each) for name, each in given if name not in self._keys]
        in_environment = [(_key_of(each.name), each) for each in self._unread_variables()]
        for key, each in [*in_file, *in_environment]:
            self.warnings.append(self._unread(key, each, known))

    def _unread_variables(self) -> list[Setting]:
        return [
            each
            for name, each in self._environment.items()
            if name not in self._variables and name.startswith(("OPTION_", "SERVING_"))
        ]

    def effective(self) -> list[EffectiveValue]:
        """Return every loaded or passed-through key, in the order of loading."""
        return list(self._effective.values())

    def _last_of_each(self, file: Iterable[Setting]) -> dict[str, Setting]:
        last: dict[str, Setting] = {}
        for each in file:
            if each.name in last:
                self._warn_unless_same(each.name, each, last[each.name])
            last[each.name] = each
        return {name: each for name, each in last.items() if each.value}

    def _find(self, key: DeclaredKey) -> Setting | None:
        if override := self._override((key.key, *key.aliases)):
            return override
        in_file = [self._file[name] for name in (key.key, *key.aliases) if name in self._file]
        in_environment = [self._environment[name] for name in key.environment if name in self._environment]
        in_common = [self._common[key.key]] if key.key in self._common else []
        found = in_file or self._misplaced_key(key) or in_environment or in_common
        for other in found[1:]:
            self._warn_unless_same(key.key, found[0], other)
        return found[0] if found else None

    def _override(self, names: Sequence[str]) -> Setting | None:
        """Find the last override of a key, by any of its names, with or without prefix."""
        bare = [name.removeprefix(OPTION_PREFIX) for name in names]
        found = [name for name in self._overrides if name in names or (name in bare and name not in self._keys)]
        self._keys |= dict.fromkeys(found, names[0])
        return self._overrides[found[-1]] if found else None

    def _misplaced_key(self, key: DeclaredKey) -> list[Setting]:
        """Find `x` if `option.x` is declared, and vice versa: DJLServing silently ignores such keys."""
        name = key.key.removeprefix(OPTION_PREFIX) if key.key.startswith(OPTION_PREFIX) else OPTION_PREFIX + key.key
        given = self._file.get(name)
        if given is None or name in self._keys:
            return []
        self._keys[name] = key.key
        self.warnings.append(f"{given.source}: {name} is read as {key.key}, the name of that key")
        return [given]

    def _validate(self, properties_type: type[P], keys: Sequence[DeclaredKey], given: Mapping[str, Setting]) -> P:
        values = {field: each.value for field, each in given.items()}
        try:
            return properties_type.model_validate(values)
        except ValidationError as error:
            if folded := _lower_case_fixes(error, properties_type, values):
                respelt = {field: given[field]._replace(value=value) for field, value in folded.items()}
                return self._validate(properties_type, keys, {**given, **respelt})
            complaints = _complaints(error, keys, given)
        self.errors += complaints.values()
        if complaints.keys().isdisjoint(values):  # a required key is missing, or a rule about several keys is broken
            self.raise_errors()
        rest = {field: each for field, each in given.items() if field not in complaints}
        return self._validate(properties_type, keys, rest)

    def _warn_unless_same(self, key: str, used: Setting, unused: Setting) -> None:
        if used.value != unused.value:
            self.warnings.append(f"{key}: the value from {unused.source} is overridden by the one from {used.source}")

    def _register(self, key: str, aliases: Iterable[str], variables: Iterable[str]) -> None:
        self._keys |= dict.fromkeys((key, *aliases), key)
        self._variables |= dict.fromkeys(variables, key)

    def _record(self, key: str, given: Setting) -> None:
        self._effective[key] = EffectiveValue(key, given.value, given.source)

    def _unread(self, key: str, given: Setting, known: Mapping[str, str]) -> str:
        if key in known:
            return f"{given.source}: {key} has no effect: {known[key]}. Given: {display_value(key, given.value)}"
        likely = self._likely_key(given.name)
        if given.source.startswith("environment"):
            hint = f"; did you mean {environment_variable(likely)}?" if likely else ""
            return f"{given.source} is not a known variable and is ignored{hint}"
        return f"{given.source}: {given.name} is not a known key and is ignored{self._hint(given)}"

    def _hint(self, given: Setting) -> str:
        likely = self._likely_key(given.name)
        return f"; did you mean {likely}?" if likely else ""

    def _likely_key(self, name: str) -> str | None:
        spellings = self._variables | {key: key for key in self._further} | self._keys
        keys = {_bare(known): key for known, key in spellings.items()}
        return next((keys[match] for match in get_close_matches(_bare(name), keys, n=1, cutoff=NEAR)), None)


def _read_file(path: Path) -> list[Setting]:
    if not path.exists():
        return []
    try:
        text = path.read_bytes().decode()
    except OSError as error:
        raise ConfigurationError(unreadable(error, path)) from None
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path.name} must be UTF-8 text: {error}") from error
    entries = java_properties.parse(text, path.name)
    return [Setting(entry.key, entry.value.strip(), f"{path.name}:{entry.line}") for entry in entries]


def _normalize_case(variable: str) -> str:
    """Return `OPTION_*` and `SERVING_*` names in upper case; names of other variables are case-sensitive."""
    upper = variable.upper()
    return upper if upper.startswith(("OPTION_", "SERVING_")) else variable


def _key_of(variable: str) -> str:
    """Return the key of an `OPTION_*` or `SERVING_*` variable, in lower case."""
    prefix, _, name = variable.partition("_")
    return (OPTION_PREFIX if prefix.upper() == "OPTION" else "") + name.lower()


def display_value(key: str, value: str) -> str:
    """Return a key's value for display: on one line, and hidden if the key's name suggests a secret."""
    return "***" if _SECRET.search(key) else " ".join(value.split())


def _lower_case_fixes(
    error: ValidationError, properties_type: type[Properties], values: Mapping[str, str]
) -> dict[str, str]:
    """Return the invalid values that are valid in lower case, such as `FP16` and `Max`:

    LMI ignores the case of names.
    """
    wrong = {str(details["loc"][0]) for details in error.errors() if details["loc"]} & values.keys()
    names = {field for field in wrong if _WORD.fullmatch(values[field]) and not values[field].islower()}
    lower = {field: values[field].lower() for field in names if values[field] != values[field].lower()}
    if not lower:
        return {}
    try:
        properties_type.model_validate({**values, **lower})
    except ValidationError as rest:
        still_wrong = {str(details["loc"][0]) for details in rest.errors() if details["loc"]}
        return {field: value for field, value in lower.items() if field not in still_wrong}
    return lower


def _bare(name: str) -> str:
    """Return the name without its prefix, which makes all keys look similar and may be the mistake itself."""
    for prefix in (OPTION_PREFIX, "OPTION_", "SERVING_"):
        name = name.removeprefix(prefix)
    return name.lower()


def _complaints(error: ValidationError, keys: Iterable[DeclaredKey], given: Mapping[str, Setting]) -> dict[str, str]:
    """Return one line per field, although pydantic reports an error for each member of a union."""
    declared_keys = {key.field: key for key in keys}
    lines: dict[str, str] = {}
    for details in error.errors():
        field = str(details["loc"][0]) if details["loc"] else ""
        lines.setdefault(field, _complaint(details, declared_keys.get(field), given.get(field)))
    return lines


def _complaint(details: ErrorDetails, key: DeclaredKey | None, given: Setting | None) -> str:
    own_words = details["msg"].removeprefix("Value error, ")
    if key is None:
        return f"{PROPERTIES_FILE}: {own_words}"
    if given is None:
        return f"{PROPERTIES_FILE}: {key.key} is required"
    demand = own_words if details["type"] == "value_error" else f"must be {key.type}"
    hint = stray_text_hint(given.value).removesuffix(".")
    return f"{given.source}: {key.key} {demand}. Given: {display_value(key.key, given.value)}{hint and '.' + hint}"
