"""What all tests of this folder have."""

from tests.support.patient import patient

__all__ = ["patient"]
