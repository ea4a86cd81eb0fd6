"""Tokenizers with unknown expressions, which may take hours for a text: a thread runs them, within limits."""

import json
import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from lmi_core.calls.haste import NeedsTimeError, hasty_deadline
from lmi_core.errors import InvalidParameter, Overloaded

if TYPE_CHECKING:
    import tokenizers

_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_O200K_TAIL = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_END = r"\s*[\r\n]+|\s+(?!\S)|\s+"
# The expressions of most models, for which every text takes time in proportion to its length, or nearly.
KNOWN = frozenset(
    {
        r" ", r" {2,}", r"\s+", r"\n", r"\s", r"\d", r"\p{N}", r"\p{N}{1,3}", r"[\n\r\t]", r"\s{2,}|[\n\r\t]", "[0-9]",
        r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+",
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        r" ?[^(\s|[.,!?…。，、।۔،])]+",  # noqa: RUF001
        "[一-龥぀-ゟ゠-ヿ]+",  # noqa: RUF001
        "[一-龥ࠀ-一가-퟿]+",
        *(
            _CONTRACTIONS + rf"|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|" + _END
            for digits in ("", "{1,3}")
        ),
        _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + _END,
        *(
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+" + tail
            + r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*" + tail
            + rf"|\p{{N}}{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|" + _END
            for tail, digits in ((_O200K_TAIL, "{1,3}"), ("", ""), ("", "{1,3}"))
        ),
        r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
        + r"| ?[\p{P}\p{S}]+[\r\n]*|" + _END,
    }
)  # fmt: skip
MAX_WORD = 1000  # characters of a word that WordPiece takes apart, which takes their square; models have 100
MAX_SECONDS = 2.0  # of processor time for a text
CHARACTERS_PER_SECOND = 200_000  # in addition, a tenth of what tokenizers do
LOOK_SECONDS = 0.02


def may_be_costly(tokenizer: "tokenizers.Tokenizer") -> bool:
    """Return whether a tokenizer has expressions that are not known, or takes huge words apart."""
    word = getattr(tokenizer.model, "max_input_chars_per_word", 0)
    parts = (tokenizer.normalizer, tokenizer.pre_tokenizer)
    return word > MAX_WORD or any(
        each not in KNOWN for part in parts if part is not None for each in _expressions(part)
    )


def _expressions(part: Any) -> Iterator[str]:
    try:
        left = [json.loads(part.__getstate__())]
    except Exception:  # as of a part in Python, which comes with code that the operator trusts
        return
    while left:
        each = left.pop()
        if isinstance(each, dict):
            if isinstance(expression := each.get("Regex"), str):
                yield expression
            left += each.values()
        elif isinstance(each, list):
            left += each


class BoundedEncoding:
    """Encoding in a thread that may be given up: what it runs cannot be ended, but lets all others run."""

    def __init__(self, encode: Callable[[str, bool], list[int]]) -> None:
        """`encode` must let other threads run."""
        self._encode = encode
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._given_up: _Job | None = None

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        """Return a text's ids; raise NeedsTimeError where others wait for this thread.

        Raise InvalidParameter where the text takes too long, and Overloaded while such a one still runs.
        """
        if hasty_deadline() is not None:
            raise NeedsTimeError
        with self._lock:
            if self._given_up is not None and not self._given_up.done.is_set():
                raise Overloaded("the model's tokenizer still works on a text that takes it too long: try again later")
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="lmi-encoding", daemon=True)
                self._thread.start()
            job = _Job(text, add_special_tokens)
            self._jobs.put(job)
            self._wait(job, self._thread)
        if job.error is not None:
            raise job.error
        return job.ids

    def _wait(self, job: "_Job", thread: threading.Thread) -> None:
        assert thread.ident is not None
        clock = time.pthread_getcpuclockid(thread.ident)
        limit = MAX_SECONDS + len(job.text) / CHARACTERS_PER_SECOND
        begun = time.clock_gettime(clock)
        while not job.done.wait(LOOK_SECONDS):
            if time.clock_gettime(clock) - begun > limit:
                self._given_up = job
                raise InvalidParameter(
                    f"the model's tokenizer cannot read the text: that takes more than {limit:g} seconds"
                )

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            try:
                job.ids = self._encode(job.text, job.add_special_tokens)
            except BaseException as error:  # Rust's panics too
                job.error = error
            job.done.set()
            del job


class _Job:
    def __init__(self, text: str, add_special_tokens: bool) -> None:
        self.text, self.add_special_tokens = text, add_special_tokens
        self.ids: list[int] = []
        self.error: BaseException | None = None
        self.done = threading.Event()
