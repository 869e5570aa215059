"""Connections of the link notice soon that the machine at the other end is gone."""

import asyncio
import socket

__all__ = ["notice_death"]

ASK_AFTER_SECONDS = 3
ASK_TIMES = 4


def notice_death(writer: asyncio.StreamWriter) -> None:
    """Let a connection break 15 s after the other machine fell silent; TCP alone would wait for hours."""
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, ASK_AFTER_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, ASK_AFTER_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, ASK_TIMES)
    # What is sent and not acknowledged puts off the questions above, so it has the same limit.
    silence = ASK_AFTER_SECONDS * (ASK_TIMES + 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * silence)
