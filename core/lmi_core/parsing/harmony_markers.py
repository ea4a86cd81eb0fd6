"""The special tokens of OpenAI's harmony format, in which gpt-oss writes messages in channels."""

import re

START, CHANNEL, MESSAGE, CONSTRAIN = "<|start|>", "<|channel|>", "<|message|>", "<|constrain|>"
ENDS = ("<|end|>", "<|call|>", "<|return|>")
MARKERS = (START, CHANNEL, MESSAGE, CONSTRAIN, *ENDS)
CHANNEL_NAME = re.compile(r"<\|channel\|>\s*(\w+)")
