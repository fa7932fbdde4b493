#!/usr/bin/env python3
"""`drafthouse report`, from the clone."""

from _clone import door

door("report")
