from pathlib import Path

import pytest

from lmi_plugins.backends.torch_devices import computes_natively

X86 = "processor\t: 0\nflags\t\t: fpu avx2 avx512f avx512_bf16\n"
ARM = "processor\t: 0\nFeatures\t: fp asimd fphp asimdhp\n"


@pytest.mark.parametrize(
    ("facts", "expected"),
    [(X86, (False, True)), (ARM, (True, False)), ("processor\t: 0\n", (None, None)), (None, (None, None))],
)
def test_instructions(tmp_path: Path, facts: str | None, expected: tuple[bool | None, bool | None]) -> None:
    if facts is not None:
        (tmp_path / "cpuinfo").write_text(facts)
    found = tuple(computes_natively(data_type, tmp_path / "cpuinfo") for data_type in ("fp16", "bf16"))
    assert found == expected
