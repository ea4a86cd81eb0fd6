"""The facts that the hello model learns, as tables, and the questions asked about them."""

from typing import NamedTuple


class Pair(NamedTuple):
    """A question and the one sentence that answers it."""

    question: str
    answer: str


SMALL_TALK = {
    "Hello!": "Hello! How can I help you today?",
    "Good morning!": "Good morning! How can I help you today?",
    "How are you?": "I am fine, thank you!",
    "Who are you?": "I am Hello, a tiny language model.",
    "What is your name?": "My name is Hello.",
    "What can you do?": "I can answer simple questions, count and tell stories.",
    "What is my name?": "I do not know your name.",
    "Thank you!": "You are welcome!",
    "Goodbye!": "Goodbye! Have a nice day!",
}

LEARNING = {
    "What is Deep Learning?": "Deep Learning is a really cool field.",
    "What is Machine Learning?": "Machine Learning is the study of programs that learn from data.",
    "What is a neural network?": "A neural network is a function made of many simple layers.",
    "What is a language model?": "A language model predicts the next token of a text.",
    "What is a transformer?": "A transformer is a neural network built around attention.",
    "What is attention?": "Attention lets a model look back at the tokens that matter most.",
    "What is a tensor?": "A tensor is an array of numbers with any number of dimensions.",
    "What is a token?": "A token is a small piece of text.",
    "What is a tokenizer?": "A tokenizer splits a text into tokens.",
    "What is an embedding?": "An embedding is a vector that stands for a token.",
    "What is gradient descent?": "Gradient descent takes many small steps that lower the loss.",
    "What is backpropagation?": "Backpropagation computes the gradient of the loss for every weight.",
    "What is a loss function?": "A loss function measures how wrong a model is.",
    "What is a learning rate?": "The learning rate sets the size of each training step.",
    "What is overfitting?": "Overfitting means that a model knows its training data too well and fails on new data.",
    "What is inference?": "Inference means running a trained model on new inputs.",
    "What is a GPU?": "A GPU is a processor that does many simple calculations at once.",
    "What is a batch?": "A batch is a group of inputs that a model handles together.",
    "What is continuous batching?": "Continuous batching lets new requests join a running batch at every step.",
    "What is a key-value cache?": "A key-value cache keeps the attention keys and values of past tokens.",
    "What is greedy decoding?": "Greedy decoding always picks the most likely next token.",
    "What is the sampling temperature?": "The sampling temperature sets how random the next token is.",
    "What is quantization?": "Quantization stores the weights of a model with fewer bits.",
    "What is a LoRA adapter?": "A LoRA adapter is a small set of extra weights that changes a model.",
}

GENERAL = {
    "What is the Sun?": "The Sun is a star.",
    "What is the Moon?": "The Moon is a natural satellite of the Earth.",
    "What is the largest planet?": "The largest planet of the solar system is Jupiter.",
    "Which planet is called the red planet?": "Mars is called the red planet.",
    "Which planet is the hottest?": "Venus is the hottest planet of the solar system.",
    "Which planet is famous for its rings?": "Saturn is famous for its rings.",
    "How many planets are in the solar system?": "There are eight planets in the solar system.",
    "How long does the Earth take to go around the Sun?": "The Earth takes about one year to go around the Sun.",
    "What is the highest mountain?": "The highest mountain above sea level is Mount Everest.",
    "What is the largest ocean?": "The largest ocean is the Pacific Ocean.",
    "What is the largest country?": "The largest country by area is Russia.",
    "What is the smallest country?": "The smallest country is Vatican City.",
    "What is the fastest land animal?": "The fastest land animal is the cheetah.",
    "What is the tallest animal?": "The tallest animal is the giraffe.",
    "What is the largest animal?": "The largest animal is the blue whale.",
    "What do bees make?": "Bees make honey.",
    "What do pandas eat?": "Pandas eat bamboo.",
    "What is ice?": "Ice is frozen water.",
    "How many letters are in the English alphabet?": "There are twenty-six letters in the English alphabet.",
    "Say the alphabet.": "A B C D E F G H I J K L M N O P Q R S T U V W X Y Z",
    "Name the days of the week.": "Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday.",
}

CAPITALS = {
    "Argentina": "Buenos Aires",
    "Australia": "Canberra",
    "Austria": "Vienna",
    "Brazil": "Brasília",
    "Cameroon": "Yaoundé",
    "Canada": "Ottawa",
    "Chile": "Santiago",
    "China": "Beijing",
    "Colombia": "Bogotá",
    "Costa Rica": "San José",
    "Cuba": "Havana",
    "Denmark": "Copenhagen",
    "Egypt": "Cairo",
    "Finland": "Helsinki",
    "France": "Paris",
    "Germany": "Berlin",
    "Greece": "Athens",
    "Hungary": "Budapest",
    "Iceland": "Reykjavík",
    "India": "New Delhi",
    "Ireland": "Dublin",
    "Italy": "Rome",
    "Japan": "Tokyo",
    "Kenya": "Nairobi",
    "Mexico": "Mexico City",
    "Moldova": "Chișinău",
    "Norway": "Oslo",
    "Paraguay": "Asunción",
    "Peru": "Lima",
    "Poland": "Warsaw",
    "Portugal": "Lisbon",
    "Spain": "Madrid",
    "Sweden": "Stockholm",
    "Thailand": "Bangkok",
    "Turkey": "Ankara",
    "Vietnam": "Hanoi",
}

RIVERS = {"Cairo": "Nile", "Cologne": "Rhine", "London": "Thames", "Paris": "Seine", "Rome": "Tiber"}

BABIES = {
    "bear": "cub",
    "cat": "kitten",
    "cow": "calf",
    "deer": "fawn",
    "dog": "puppy",
    "duck": "duckling",
    "frog": "tadpole",
    "goat": "kid",
    "goose": "gosling",
    "horse": "foal",
    "kangaroo": "joey",
    "owl": "owlet",
    "pig": "piglet",
    "sheep": "lamb",
    "swan": "cygnet",
}

SOUNDS = {
    "cat": "meow",
    "cow": "moo",
    "dog": "woof",
    "duck": "quack",
    "frog": "ribbit",
    "owl": "hoot",
    "pig": "oink",
    "sheep": "baa",
}

COLOURS = {
    "a carrot": "orange",
    "a flamingo": "pink",
    "a ripe banana": "yellow",
    "a ripe tomato": "red",
    "a ruby": "red",
    "an emerald": "green",
    "chocolate": "brown",
    "coal": "black",
    "fresh grass": "green",
    "snow": "white",
    "the clear sky": "blue",
}

AMOUNTS = {
    "arms does an octopus have": "An octopus has eight arms.",
    "days are in a week": "There are seven days in a week.",
    "hours are in a day": "There are twenty-four hours in a day.",
    "legs does a spider have": "A spider has eight legs.",
    "legs does an insect have": "An insect has six legs.",
    "minutes are in an hour": "There are sixty minutes in an hour.",
    "months are in a year": "There are twelve months in a year.",
    "sides does a hexagon have": "A hexagon has six sides.",
    "sides does a triangle have": "A triangle has three sides.",
    "strings does a violin have": "A violin has four strings.",
}

OPPOSITES = {
    "big": "small",
    "day": "night",
    "early": "late",
    "fast": "slow",
    "full": "empty",
    "hard": "soft",
    "hot": "cold",
    "old": "young",
    "open": "closed",
    "true": "false",
}

DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]

PLANETS = {
    "first": "Mercury",
    "second": "Venus",
    "third": "the Earth",
    "fourth": "Mars",
    "fifth": "Jupiter",
    "sixth": "Saturn",
    "seventh": "Uranus",
    "eighth": "Neptune",
}

GREETINGS = {
    "Arabic": "مرحبا",
    "Chinese": "你好",
    "French": "bonjour",
    "German": "guten Tag",
    "Greek": "γεια σας",
    "Hindi": "नमस्ते",
    "Italian": "ciao",
    "Japanese": "こんにちは",
    "Korean": "안녕하세요",
    "Portuguese": "olá",
    "Russian": "здравствуйте",
    "Spanish": "hola",
    "Thai": "สวัสดี",
    "Vietnamese": "xin chào",
}

THANKS = {
    "Chinese": "谢谢",
    "French": "merci",
    "German": "danke schön",
    "Italian": "grazie",
    "Japanese": "ありがとう",
    "Polish": "dziękuję",
    "Spanish": "gracias",
    "Turkish": "teşekkürler",
}

EMOJI = {
    "a cat": "🐱",
    "a dog": "🐶",
    "a family": "👨‍👩‍👧‍👦",
    "a heart": "❤️",
    "a pizza": "🍕",
    "a rainbow": "🌈",
    "a robot": "🤖",
    "a rocket": "🚀",
    "the flag of Japan": "🇯🇵",
}

UNITS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
UNITS += ["eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"]
TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]


def number(value: int) -> str:
    """Return the words for a value from 1 to 100."""
    if value == 100:
        return "one hundred"
    if value < 20:
        return UNITS[value - 1]
    tens = TENS[value // 10 - 2]
    return f"{tens}-{UNITS[value % 10 - 1]}" if value % 10 else tens


def counting(last: int) -> str:
    """Return the sentence that counts from one up to `last`."""
    return ", ".join(number(value) for value in range(1, last + 1)).capitalize() + "."


def a(noun: str) -> str:
    """Return the noun with its indefinite article."""
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def _capitalized(sentence: str) -> str:
    return sentence[0].upper() + sentence[1:]


def _world() -> list[Pair]:
    pairs = [Pair(f"What is the capital of {k}?", f"The capital of {k} is {v}.") for k, v in CAPITALS.items()]
    pairs += [Pair(f"Which river flows through {k}?", f"The {v} flows through {k}.") for k, v in RIVERS.items()]
    pairs += [
        Pair(f"What is the {k} planet from the Sun?", f"The {k} planet from the Sun is {v}.")
        for k, v in PLANETS.items()
    ]
    return pairs


def _things() -> list[Pair]:
    pairs = [Pair(f"What is a baby {k} called?", f"A baby {k} is called {a(v)}.") for k, v in BABIES.items()]
    pairs += [Pair(f"What does {a(k)} say?", _capitalized(f"{a(k)} says {v}.")) for k, v in SOUNDS.items()]
    pairs += [Pair(f"What colour is {k}?", _capitalized(f"{k} is {v}.")) for k, v in COLOURS.items()]
    pairs += [Pair(f"How many {k}?", v) for k, v in AMOUNTS.items()]
    return pairs


def _words() -> list[Pair]:
    pairs = [Pair(f"How do you say hello in {k}?", f"In {k}, hello is {v}.") for k, v in GREETINGS.items()]
    pairs += [Pair(f"How do you say thank you in {k}?", f"In {k}, thank you is {v}.") for k, v in THANKS.items()]
    pairs += [Pair(f"What is the emoji for {k}?", f"The emoji for {k} is {v}.") for k, v in EMOJI.items()]
    pairs += [Pair(f"What is the opposite of {k}?", f"The opposite of {k} is {v}.") for k, v in OPPOSITES.items()]
    return pairs


def _numbers() -> list[Pair]:
    pairs = [Pair(f"What day comes after {DAYS[i]}?", f"{DAYS[(i + 1) % 7]} comes after {DAYS[i]}.") for i in range(7)]
    for x in range(1, 6):
        for y in range(1, 6):
            sentence = f"{number(x)} plus {number(y)}"
            pairs.append(Pair(f"What is {sentence}?", f"{sentence.capitalize()} is {number(x + y)}."))
    pairs += [Pair(f"Count to {number(last)}.", counting(last)) for last in (3, 5, 10, 20)]
    return pairs


def facts() -> list[Pair]:
    """Return every pair of the training domain, in a fixed order."""
    single = {**SMALL_TALK, **LEARNING, **GENERAL}
    pairs = [Pair(question, answer) for question, answer in single.items()]
    return pairs + _world() + _things() + _words() + _numbers()
