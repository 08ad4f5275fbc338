"""The command that starts a worker."""

import sys

#: The program of a worker, in an interpreter like this one.
WORKER = (sys.executable, "-m", "opassay.properties.programs.worker")
