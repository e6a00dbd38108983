"""A plugin's module that never finishes its import."""

import time

time.sleep(600)
