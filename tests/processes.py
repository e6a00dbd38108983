"""Programs for child processes of the tests."""

from __future__ import annotations

#: The signals of a shell in the foreground: a job in the background inherits some as ignored.
FOREGROUND = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGTERM, signal.SIG_DFL)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
"""
