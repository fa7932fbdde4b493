#!/usr/bin/env python3
"""`drafthouse translate`, from the clone."""

from _clone import door

door("translate")
