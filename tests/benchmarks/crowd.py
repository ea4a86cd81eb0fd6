"""`python -m tests.benchmarks.crowd HOST PORT COUNT`: clients that ask a full server, all at once and again and again.

They connect and then follow commands on standard input: after "ask", each sends requests until "stop", again as soon as
`Retry-After` allows. After each "stop", they print how many requests were refused, and how many were not.
"""

import asyncio
import sys
from collections import Counter

BODY = b'{"inputs": "Hello world", "parameters": {"max_new_tokens": 1}}'
HEAD = b"POST /invocations HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
REQUEST = HEAD % len(BODY) + BODY
REFUSED = b"HTTP/1.1 503 "


class Client:
    """One client, on one connection, which is opened again where the server has closed it."""

    def __init__(self, host: str, port: int, counts: Counter[bool]) -> None:
        self._address = host, port
        self._counts = counts
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter | None = None

    async def connect(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._reader, self._writer = await asyncio.open_connection(*self._address)

    async def ask(self) -> None:
        """Ask until cancelled."""
        while True:
            await asyncio.sleep(await self._ask_once())

    async def _ask_once(self) -> float:
        """Return the seconds until the next attempt."""
        if self._writer is None or self._writer.is_closing():
            await self.connect()
        assert self._writer is not None
        self._writer.write(REQUEST)
        try:
            head = await self._reader.readuntil(b"\r\n\r\n")
            headers = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line)
            await self._reader.readexactly(int(headers[b"content-length"]))
        except (asyncio.IncompleteReadError, ConnectionError):
            self._writer.close()
            return 1
        self._counts[head.startswith(REFUSED)] += 1
        return float(headers.get(b"retry-after", b"1"))


async def crowd(host: str, port: int, count: int) -> None:
    counts = Counter[bool]()
    clients = [Client(host, port, counts) for _ in range(count)]
    for each in clients:
        await each.connect()
    print("connected", flush=True)
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while await lines.readline():
        asking = [asyncio.create_task(each.ask()) for each in clients]
        await lines.readline()
        for task in asking:
            task.cancel()
        await asyncio.wait(asking)
        for client in clients:
            await client.connect()  # an answer may be on its way on the one before
        print(counts[True], counts[False], flush=True)
        counts.clear()


if __name__ == "__main__":
    asyncio.run(crowd(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
