"""A list of named values with repeatable names: `djl_python.PairList`."""

from collections.abc import Iterable, Mapping
from typing import Any


class PairList:
    def __init__(
        self,
        keys: list[Any] | None = None,
        values: list[Any] | None = None,
        pair_list: Iterable[tuple[Any, Any]] | None = None,
        pair_map: Mapping[Any, Any] | None = None,
    ) -> None:
        self.keys: list[Any] = list(keys or ())
        self.values: list[Any] = list(values or ())
        if len(self.keys) != len(self.values):
            raise ValueError(f"there are {len(self.keys)} keys and {len(self.values)} values")
        for key, value in [*(pair_list or ()), *(pair_map or {}).items()]:
            self.add(key, value)

    def add(
        self, key: Any = None, value: Any = None, index: int | None = None, pair: tuple[Any, Any] | None = None
    ) -> None:
        """Add a pair at the end, or before the index."""
        if pair is not None:
            key, value = pair
        place = len(self.keys) if index is None else index
        self.keys.insert(place, key)
        self.values.insert(place, value)

    def add_all(self, other: "PairList") -> None:
        self.keys += other.keys
        self.values += other.values

    def size(self) -> int:
        return len(self.keys)

    def is_empty(self) -> bool:
        return not self.keys

    def get(self, key: Any) -> Any:
        """Return the first value of that name, or None."""
        return self.values[self.keys.index(key)] if key in self.keys else None

    def key_at(self, index: int) -> Any:
        return self.keys[index]

    def value_at(self, index: int) -> Any:
        return self.values[index]

    def get_keys(self) -> list[Any]:
        return self.keys

    def get_values(self) -> list[Any]:
        return self.values
