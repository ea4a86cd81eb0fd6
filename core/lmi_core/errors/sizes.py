"""Sizes in words."""

UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
THOUSAND = 1000


def readable(size: float) -> str:
    """Return a number of bytes in the form `4.2 GB`."""
    for unit in UNITS:
        if size < THOUSAND or unit == UNITS[-1]:
            return f"{size:.3g} {unit}" if size < THOUSAND and unit != "B" else f"{size:.0f} {unit}"
        size /= THOUSAND
    raise AssertionError
