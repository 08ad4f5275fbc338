"""`python -m workshop`: the commands of the makers, in a checkout of opassay."""

import sys

from opassay.reports.cli.main import main

sys.exit(main(commands="workshop.commands.group:cli", program="python -m workshop"))
