"""Processes that a server starts under gRPC's calls, as it does when it replaces an engine."""

import asyncio
import sys

import pytest

from tests.conftest import SCRIPTED, ModelDirectory

# A process of its own, as gRPC is set up once for each, when it is imported.
SERVER = """
import asyncio, sys
from collections import Counter
from pathlib import Path
import uvloop
from lmi_handlers.testing.servers import running_server

async def main():
    async with running_server(Path(sys.argv[1]), grpc=True) as server:
        client = await asyncio.create_subprocess_exec(
            sys.executable, "-c", sys.argv[2], server.grpc_address, stdout=asyncio.subprocess.PIPE
        )
        await client.stdout.readline()
        codes = Counter()
        for _ in range(150):
            process = await asyncio.create_subprocess_exec("true", start_new_session=True)
            codes[await process.wait()] += 1
            await asyncio.sleep(0.01)
        client.kill()
        await client.wait()
    print(dict(codes))

uvloop.run(main())
"""
CLIENT = """
import sys, threading
import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

def call():
    while True:
        with grpc.insecure_channel(sys.argv[1]) as channel:
            for _ in range(20):
                service_pb2_grpc.GRPCInferenceServiceStub(channel).ServerLive(service_pb2.ServerLiveRequest())

for _ in range(8):
    threading.Thread(target=call).start()
with grpc.insecure_channel(sys.argv[1]) as channel:
    grpc.channel_ready_future(channel).result()
print("connected", flush=True)
"""


@pytest.mark.slow
async def test_processes_that_are_started_under_calls_run(model_dir: ModelDirectory) -> None:
    directory = model_dir({"serving.properties": SCRIPTED})
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SERVER, str(directory), CLIENT, stdout=pipe, stderr=pipe
    )
    out, errors = await process.communicate()
    assert out.decode().splitlines()[-1:] == ["{0: 150}"], errors.decode()
