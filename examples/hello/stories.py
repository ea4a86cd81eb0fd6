"""A small grammar of stories: one hero, one friend, one lost thing and one day."""

import random
from collections.abc import Sequence

from examples.hello.facts import a

OPENING = "Once upon a time"

HEROES = {
    "Mia": "she",
    "Leo": "he",
    "Nora": "she",
    "Finn": "he",
    "Ada": "she",
    "Otto": "he",
    "Lily": "she",
    "Max": "he",
    "Rosa": "she",
    "Theo": "he",
    "Ivy": "she",
    "Hugo": "he",
}
KINDS = ["fox", "rabbit", "bear", "mouse", "hedgehog", "squirrel", "cat", "turtle", "duck", "dog"]
TRAITS = ["brave", "kind", "curious", "clever", "little", "cheerful", "quiet", "gentle"]
THINGS = ["golden key", "red kite", "silver bell", "blue stone", "old map", "small lantern", "wooden boat", "green hat"]
PLACES = ["river", "forest", "lake", "hill", "meadow", "village", "garden", "old bridge"]
FOODS = ["sweet berries", "honey cake", "warm bread", "red apples", "roasted nuts", "pumpkin soup"]
ELDERS = ["owl", "goat", "raven", "toad"]

Slot = tuple[float, list[str]]

BEGINNING: list[Slot] = [
    (
        1.0,
        [
            "Once upon a time, there was {a_hero_kind} named {hero}.",
            "Once upon a time, {a_hero_kind} named {hero} lived near the {home}.",
            "Once upon a time, in a house by the {home}, there lived {a_hero_kind} named {hero}.",
        ],
    ),
    (
        0.7,
        [
            "{She} lived with {her} family in a cosy little house.",
            "{Her} house was small, but the garden was full of flowers.",
            "Everyone near the {home} knew {hero} and loved {her} songs.",
        ],
    ),
    (
        0.7,
        [
            "More than anything, {hero} loved {food}.",
            "Every day, {she} ate {food} for breakfast.",
            "{She} liked long walks, sunny days and {food}.",
        ],
    ),
    (
        1.0,
        [
            "One morning, {hero} found {a_thing} under a tree.",
            "One morning, {she} saw {a_thing} in the tall grass.",
            "One day, {hero} went for a walk and found {a_thing} on the path.",
        ],
    ),
    (
        0.7,
        [
            '"What a beautiful {thing}!" said {hero}.',
            '"Who has lost this {thing}?" {she} wondered.',
            "It lay there in the light of the sun.",
        ],
    ),
    (
        1.0,
        [
            "At noon, {hero} met {a_friend_kind} named {friend}.",
            "On the way to the {place}, {she} met {a_friend_kind} named {friend}.",
            "Then {she} heard a voice, and out came {a_friend_kind} named {friend}.",
        ],
    ),
]

RETURN: list[Slot] = [
    (
        1.0,
        [
            '"That is my {thing}!" cried {friend}.',
            '"I have looked for my {thing} everywhere," said {friend}.',
            '"Have you seen my {thing}?" asked {friend}.',
        ],
    ),
    (
        1.0,
        [
            "{hero} smiled and gave it back at once.",
            "{hero} was happy to give it back.",
        ],
    ),
    (
        0.7,
        [
            '"Thank you, {hero}! You are very kind," said {friend}.',
            "{friend} was so happy that {friend_she} began to dance.",
            '"How can I ever thank you?" said {friend}.',
        ],
    ),
    (
        1.0,
        [
            "In the afternoon, they went to the {place} to play.",
            "In the afternoon, {friend} showed {hero} the way to the {place}.",
        ],
    ),
]

JOURNEY: list[Slot] = [
    (
        1.0,
        [
            '"Let us ask the wise {elder} at the {place}," said {friend}.',
            '"I know an old {elder} who can help us," said {friend}.',
        ],
    ),
    (
        1.0,
        [
            "So they walked and walked until they came to the {place}.",
            "The way to the {place} was long, but they sang all the time.",
        ],
    ),
    (
        0.7,
        [
            "Suddenly, it began to rain, and they hid under a big leaf.",
            "A cold wind began to blow, but they were not afraid.",
        ],
    ),
    (
        1.0,
        [
            "In the afternoon, they met the old {elder}.",
            "There they found the house of the old {elder}.",
        ],
    ),
    (
        1.0,
        [
            '"Keep the {thing}, for it brings luck to good friends," said the {elder}.',
            '"This {thing} was mine when I was young," said the {elder}.',
        ],
    ),
]

PLAY: list[Slot] = [
    (
        0.8,
        [
            "First, they climbed the tallest tree.",
            "First, they played hide and seek.",
            "First, they swam in the cool water.",
        ],
    ),
    (
        0.6,
        [
            "Then they picked flowers and made a crown for {friend}.",
            "Then they looked at the clouds and gave each one a name.",
        ],
    ),
    (
        0.4,
        [
            "After that, they built a tiny house out of leaves.",
            "After that, they ran down to the {home} and back again.",
        ],
    ),
]

ENDING: list[Slot] = [
    (
        1.0,
        [
            "In the evening, they shared {food} by the fire.",
            "When the sun went down, they ate {food} and told each other stories.",
        ],
    ),
    (
        0.7,
        [
            "The stars came out, and the moon was round and bright.",
            "A warm wind blew over the {home}.",
        ],
    ),
    (
        0.7,
        [
            "{hero} was tired but very happy.",
            '"This was the best day of my life," said {hero}.',
        ],
    ),
    (
        1.0,
        [
            "From that day on, {hero} and {friend} were best friends.",
            "And so {hero} and {friend} became the best of friends.",
        ],
    ),
    (0.5, ["The end."]),
]


def pick(rng: random.Random, options: Sequence[str]) -> str:
    """Choose an option, earlier ones more often, so that greedy decoding has a clear favourite."""
    weights = [0.75**rank for rank in range(len(options))]
    return rng.choices(options, weights)[0]


def _cast(rng: random.Random, kind: str) -> dict[str, str]:
    hero = pick(rng, list(HEROES))
    friend = pick(rng, [name for name in HEROES if name != hero])
    home = pick(rng, PLACES)
    friend_kind = pick(rng, [other for other in KINDS if other != kind])
    thing = pick(rng, THINGS)
    she = HEROES[hero]
    her = "her" if she == "she" else "his"
    return {
        "hero": hero,
        "she": she,
        "She": she.capitalize(),
        "her": her,
        "Her": her.capitalize(),
        "friend": friend,
        "friend_she": HEROES[friend],
        "a_hero_kind": a(f"{pick(rng, TRAITS)} {kind}"),
        "a_friend_kind": a(f"{pick(rng, TRAITS)} {friend_kind}"),
        "thing": thing,
        "a_thing": a(thing),
        "home": home,
        "place": pick(rng, [place for place in PLACES if place != home]),
        "food": pick(rng, FOODS),
        "elder": pick(rng, ELDERS),
    }


def story(rng: random.Random, kind: str | None = None) -> str:
    """Tell a story whose hero is an animal of that kind, or of any kind."""
    cast = _cast(rng, kind or pick(rng, KINDS))
    plot = RETURN + PLAY if rng.random() < 0.6 else JOURNEY
    slots = BEGINNING + plot + ENDING
    sentences = [pick(rng, options) for chance, options in slots if rng.random() < chance]
    return " ".join(sentence.format_map(cast) for sentence in sentences)
