#!/usr/bin/env python3
"""Answer with one file of a folder: all that the key of a box which fetches its weights from this one may do here.

    hand_on.py FOLDER      (as a forced command in authorized_keys; the request is in SSH_ORIGINAL_COMMAND)

A request is an offset in bytes and a path below the folder, percent-encoded. The answer is one line of JSON with the
file's whole size, or with an error, and then the bytes from the offset on. Standard library only, Python 3.10.
"""

import json
import os
import shutil
import sys
from pathlib import Path
from urllib.parse import unquote


def answer(folder: Path, request: str) -> int:
    """Write the answer to stdout; return the exit status."""
    out = sys.stdout.buffer
    try:
        offset, _, name = request.partition(" ")
        path = (folder / unquote(name)).resolve(strict=True)
        # What a link in the folder leads to is not handed out, nor is anything above it.
        if not path.is_relative_to(folder.resolve()) or not path.is_file():
            raise ValueError("no file of this folder")
        with path.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            stream.seek(min(int(offset), size))
            out.write(json.dumps({"size": size}).encode() + b"\n")
            shutil.copyfileobj(stream, out, 1 << 20)
            out.flush()
    except BrokenPipeError:
        return 0  # the other side has read enough
    except (OSError, ValueError) as error:
        out.write(json.dumps({"error": getattr(error, "strerror", None) or str(error)}).encode() + b"\n")
        out.flush()
        return 1
    return 0


if __name__ == "__main__":
    status = answer(Path(sys.argv[1]), os.environ.get("SSH_ORIGINAL_COMMAND", ""))
    # Without Python's own flush at the end, which complains where nobody listens any more.
    os._exit(status)
