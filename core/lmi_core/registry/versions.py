"""The versions of one model, and the default for requests without a version."""

from collections.abc import Iterator

from lmi_core.registry.registered_model import RegisteredModel


class Versions:
    """The registered versions of a name, in the order of registration."""

    def __init__(self) -> None:
        self._by_version: dict[str | None, RegisteredModel] = {}
        self._chosen: list[RegisteredModel] = []  # most recent last; a version that is loading counts once it is served

    def __iter__(self) -> Iterator[RegisteredModel]:
        return iter(self._by_version.values())

    def __len__(self) -> int:
        return len(self._by_version)

    def get(self, version: str | None) -> RegisteredModel | None:
        return self._by_version.get(version)

    @property
    def default(self) -> RegisteredModel:
        """The version for requests without a version: the last chosen one that is served, otherwise the first served
        one.
        """
        candidates = (*reversed(self._chosen), *self)
        return next((each for each in candidates if each.is_served), next(iter(self)))

    def add(self, registered: RegisteredModel) -> None:
        """Add a version, replacing a failed one."""
        if (failed := self.get(registered.version)) is not None:
            self._unchoose(failed)
        self._by_version[registered.version] = registered

    def choose(self, registered: RegisteredModel) -> None:
        """Make a version the default, until it is removed or another one is chosen."""
        self._unchoose(registered)
        self._chosen.append(registered)

    def remove(self, registered: RegisteredModel) -> None:
        del self._by_version[registered.version]
        self._unchoose(registered)

    def _unchoose(self, registered: RegisteredModel) -> None:
        if registered in self._chosen:
            self._chosen.remove(registered)
