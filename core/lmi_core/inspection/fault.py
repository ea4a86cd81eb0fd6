"""A fault that the files of a model show."""


class Fault(Exception):
    """A reason for which a model cannot be loaded, as a sentence that names the file."""
