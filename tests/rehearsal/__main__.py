"""`python -m tests.rehearsal COMMAND...`: `python -m opassay.properties.rehearsal COMMAND...`, by a shorter name."""

import sys

from opassay.properties.rehearsal.__main__ import main

main(sys.argv[1:])
