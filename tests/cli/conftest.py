"""The reports built by hand live beside the tests of the report formats."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "reports"))
