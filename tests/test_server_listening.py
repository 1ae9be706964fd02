"""The socket that `citehound serve` listens on."""

from __future__ import annotations

import asyncio
import socket

import pytest

from citehound.errors import UsageError
from citehound.server.app import bind


def test_small_answers_are_sent_without_waiting_for_acknowledgements() -> None:
    assert asyncio.run(_sends_at_once())


async def _sends_at_once() -> bool:
    listening = bind("127.0.0.1", 0)
    port = listening.getsockname()[1]
    accepted: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.set_result(writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    async with await asyncio.start_server(take, sock=listening):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        at_once = await accepted == 1
        writer.close()
        await writer.wait_closed()
    return at_once


@pytest.mark.parametrize("host", ["", " "])
def test_an_empty_host_does_not_mean_every_address(host: str) -> None:
    with pytest.raises(UsageError, match="--host is empty"):
        bind(host, 0)
