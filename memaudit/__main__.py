"""`python -m memaudit` is the command line."""

import os
import sys

# Python puts the working directory first: a folder that is audited must not bring its own modules.
if not sys.flags.safe_path and sys.path and sys.path[0] in ("", os.getcwd()):
    del sys.path[0]

from memaudit.cli import main

if __name__ == "__main__":
    sys.exit(main())
