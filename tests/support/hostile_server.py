"""A server of a test's own handler, and a verb run beside it whose memory is told at its end."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager

#: Runs `drafthouse` with the words behind it; the last line on stderr is "peak" with the most memory it held, in MB.
WITH_PEAK = (
    "import sys\nfrom drafthouse.cli.main import door\n"
    "try:\n    door()\nfinally:\n"
    "    told = open('/proc/self/status').read().partition('VmHWM:')[2].split()\n"
    "    print('peak', int(told[0]) // 1024, file=sys.stderr)\n"
)


@contextmanager
def served(handler: type[http.server.BaseHTTPRequestHandler]) -> Iterator[str]:
    """The address of a server that answers by ``handler``."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
