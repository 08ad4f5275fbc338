"""`python -m opassay`: the command line."""

import sys

from opassay.reports.cli import main

sys.exit(main())
