"""TCP ports of this machine for the tests."""

import contextlib
import random
import socket


def free_port(in_a_row: int = 1) -> int:
    """The first of so many ports that nobody holds, nor gets for a connection of his own meanwhile.

    Below Linux' ports for outgoing connections and for listeners that name none (32768 and up): from those the kernel
    gives another test the port that a server of this one leaves for a moment.
    """
    while True:
        first = random.randrange(20_000, 32_000)
        with contextlib.ExitStack() as held, contextlib.suppress(OSError):
            for port in range(first, first + in_a_row):
                held.enter_context(socket.socket()).bind(("", port))
            return first
