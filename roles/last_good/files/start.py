"""Serve what should serve on this box: started with it, by systemd or a rented container's own start script.

    start.py HOME            at once
    start.py HOME --guard    when the run that works on the box is heard of no more

Beside it lies a copy of our own code, as this box was set up with it.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from drafthouse_box.serving.restore import at_start
from drafthouse_box.serving.rollback_guard import guard

if __name__ == "__main__":
    sys.exit(guard(sys.argv[1]) if "--guard" in sys.argv else at_start(sys.argv[1]))
