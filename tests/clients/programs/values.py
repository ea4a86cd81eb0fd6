"""What the clients ask, and what the served models answer."""

from pathlib import Path
from typing import Any

HELLO = "hello"
HELLO_FOLDER = Path(__file__).parents[3] / "examples" / "hello"
SAYING = "saying"
RANKING = "ranking"
ADAPTER = "warm"
QUESTION = "What is Deep Learning?"
ANSWER = "Deep Learning is a really cool field."
MESSAGES: list[Any] = [{"role": "user", "content": QUESTION}]
PROMPT_TOKENS = 6  # of the question alone
CHAT_TOKENS = 9  # of the question in hello's chat template
ANSWER_TOKENS = 16
FIRST_TOKENS = ["D", "eep", " Learning", " is"]
FIRST_TEXT = "".join(FIRST_TOKENS)
CONTINUATIONS = [ANSWER, "Deep Learning is a really warm field.", "No", "Deep Learning", " Zyxw!"]
TEXTS = [ANSWER, QUESTION, "One two three four."]

WEATHER_QUESTION = "What is the weather?"
WEATHER_MESSAGES: list[Any] = [{"role": "user", "content": WEATHER_QUESTION}]
WEATHER_RESULT = "22 degrees and sunny"
WEATHER_ANSWER = f"The tool says: {WEATHER_RESULT}"
WEATHER_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
}
WEATHER_FUNCTION: dict[str, Any] = {
    "name": "weather",
    "description": "Return the weather of a city.",
    "parameters": WEATHER_PARAMETERS,
}
WEATHER_TOOL: dict[str, Any] = {"type": "function", "function": WEATHER_FUNCTION}
CITY = {"city": "Paris"}

THINK_QUESTION = "Think: what is Deep Learning?"
THINK_MESSAGES: list[Any] = [{"role": "user", "content": THINK_QUESTION}]
THOUGHT = "It is a question about fields."


def weather(city: str) -> str:
    """Return the weather of a city."""
    return WEATHER_RESULT if city == "Paris" else "unknown"
