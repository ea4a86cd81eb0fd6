import subprocess
import sys

import msgspec

from lmi_plugins.torch_engine.messages.requests import EngineOptions, EngineRequest, Guide, SamplingParameters


def test_travel_as_msgpack() -> None:
    guide = Guide("choice", ["a", "b"])
    parameters = SamplingParameters(
        seed=3, stop_sequences=["a"], logit_bias={3: -1.5}, embedding_bias=b"1", guide=guide
    )
    for message in (EngineRequest("a", [1, 2], parameters), EngineOptions("model", device="cuda:1", threads=4)):
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=type(message)) == message


def test_tiny_temperatures_are_greedy() -> None:
    assert SamplingParameters(temperature=1e-7).greedy
    assert not SamplingParameters(temperature=0.01).greedy


def test_importing_the_module_imports_no_torch() -> None:
    code = (
        "import sys, lmi_plugins.torch_engine.messages.requests\n"
        "sys.exit(bool({'torch', 'transformers'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
