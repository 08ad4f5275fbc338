"""`python -m opassay`: the command line."""

import sys

from opassay.reports.cli.main import main

sys.exit(main())
