"""One-line summaries of library errors."""

OWN_CODE = "`trust_remote_code=True`"  # how transformers asks for it
ADVICE = "the model contains Python code, which is not run: set option.trust_remote_code=true if you trust its author"


def reason(error: BaseException) -> str:
    """Return the first line of an error, and the following ones if it only announces them."""
    if isinstance(error, KeyError):
        return f"the key {error} is missing"
    if OWN_CODE in str(error):
        return ADVICE
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    first: list[str] = []
    for line in lines:
        first.append(line)
        if not line.endswith(":"):
            break
    return " ".join(first) or type(error).__name__
