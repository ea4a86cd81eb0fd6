from typing import Any, ClassVar

import pytest

from lmi_core.errors import PluginError
from lmi_core.plugins.registry import Registry, origin

OTHERS = (
    "Others come from installed packages of plugins, and from the files of --plugins-dir (in Python, plugins_directory)"
)


class Fruit:
    name: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]] = ()


class Apple(Fruit):
    name = "apple"


class Pear(Fruit):
    name = "pear"
    aliases = ("nashi", "williams")


class OtherPear(Fruit):
    name = "pear"


class Nashi(Fruit):
    name = "nashi"


class ShyPear(Fruit):
    name = "quince"
    aliases = ("apple",)


class Stone:
    name = "stone"


@pytest.fixture
def fruits() -> Registry[Fruit]:
    registry: Registry[Fruit] = Registry("fruit", Fruit)
    registry.register(Pear)
    registry.register(Apple)
    return registry


@pytest.mark.parametrize(("name", "expected"), [("apple", Apple), ("pear", Pear), ("nashi", Pear), ("williams", Pear)])
def test_get(fruits: Registry[Fruit], name: str, expected: type[Fruit]) -> None:
    assert fruits.get(name) is expected
    assert name in fruits


def test_iterates_over_each_class_once_in_the_order_of_registration(fruits: Registry[Fruit]) -> None:
    assert list(fruits) == [Pear, Apple]


@pytest.mark.parametrize(
    ("late", "name", "first"),
    [(OtherPear, "pear", "Pear"), (Nashi, "nashi", "Pear"), (ShyPear, "apple", "Apple"), (Pear, "pear", "Pear")],
)
def test_taken_name_names_both(fruits: Registry[Fruit], late: type[Fruit], name: str, first: str) -> None:
    with pytest.raises(PluginError) as raised:
        fruits.register(late)
    assert raised.value.message == (
        f"two plugins register the fruit `{name}`: {__name__}.{first}, {__name__}.{late.__qualname__}"
    )
    assert fruits.get(name).__name__ == first


@pytest.mark.parametrize("plugin", [Fruit, Stone, Apple(), "apple", None, lambda: Apple])
def test_only_named_subclasses_are_plugins(fruits: Registry[Fruit], plugin: Any) -> None:
    with pytest.raises(PluginError, match="must be a subclass of Fruit with a `name`"):
        fruits.register(plugin)
    assert list(fruits) == [Pear, Apple]


def test_unknown_name_lists_the_known_ones_with_a_suggestion(fruits: Registry[Fruit]) -> None:
    with pytest.raises(PluginError) as raised:
        fruits.get("aple")
    assert raised.value.message == (
        f"there is no fruit `aple`. Did you mean `apple`? Known: apple, nashi, pear, williams. {OTHERS}"
    )
    assert "aple" not in fruits


def test_unknown_name_that_is_near_to_none(fruits: Registry[Fruit]) -> None:
    with pytest.raises(PluginError) as raised:
        fruits.get("xyz")
    assert raised.value.message == f"there is no fruit `xyz`. Known: apple, nashi, pear, williams. {OTHERS}"


def test_without_one(fruits: Registry[Fruit]) -> None:
    assert list(fruits.without("nashi")) == [Apple]  # with all its names
    assert list(fruits) == [Pear, Apple]
    with pytest.raises(PluginError, match="there is no fruit `plum`"):
        fruits.without("plum")


def test_origin_of_what_is_no_class() -> None:
    assert origin(3) == "3"
    assert origin(Apple) == f"{__name__}.Apple"
