"""`python -m memaudit` is the command line."""

import sys

from memaudit.cli import main

sys.exit(main())
