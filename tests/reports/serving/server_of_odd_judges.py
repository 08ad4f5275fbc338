"""A server of `odd_judge` in a folder: `python server_of_odd_judges.py FOLDER`. It prints its port."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

from opassay.reports.cli.serving.judges import LocalJudge
from opassay.reports.cli.serving.web import serve_folder

bound = socket.create_server(("127.0.0.1", 0))
print(bound.getsockname()[1], flush=True)
judge = (sys.executable, str(Path(__file__).with_name("odd_judge.py")))
judges = [LocalJudge(judge), LocalJudge(judge)]
serve_folder(Path(sys.argv[1]), "secret", bound, judges=judges, most=100, days=1.0)
