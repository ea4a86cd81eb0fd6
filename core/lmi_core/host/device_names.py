"""DJLServing's names of devices: `*` for all, or some of them separated by `;`."""

ALL = "*"
CPU = "cpu"
FORM = "must be *, or cpu, or GPUs such as 0, gpu0 or cuda:0, separated by ;"


def parse_devices(text: str) -> tuple[str, ...]:
    """Return `cpu`, or the numbers of GPUs; nothing for all devices. Raise ValueError where a name is unknown."""
    names = [name.strip().lower() for name in text.split(";") if name.strip()]
    if names in ([], [ALL]):
        return ()
    devices = tuple(dict.fromkeys(_device(name) for name in names))
    if CPU in devices and len(devices) > 1:
        raise ValueError(f"{FORM}; the CPU cannot be used together with GPUs")
    return devices


def _device(name: str) -> str:
    if name in (CPU, "-1"):
        return CPU
    number = next((name.removeprefix(prefix) for prefix in ("cuda:", "gpu") if name.startswith(prefix)), name)
    if not (number.isascii() and number.isdecimal() and len(number) <= 4):
        raise ValueError(FORM)
    return str(int(number))
