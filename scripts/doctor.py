#!/usr/bin/env python3
"""`drafthouse doctor`, from the clone."""

from _clone import door

door("doctor")
