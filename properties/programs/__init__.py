"""The worker, a process that judges cells, and the command that starts one."""

import sys

#: The program of a worker, in an interpreter like this one.
WORKER = (sys.executable, "-m", "opassay.properties.programs.worker")
