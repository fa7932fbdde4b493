#!/usr/bin/env python3
"""`drafthouse bench`, from the clone."""

from _clone import door

door("bench")
