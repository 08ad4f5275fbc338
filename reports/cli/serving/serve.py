"""`opassay serve`: judgements over HTTP, for many who ask at once."""

from __future__ import annotations

import fcntl
import os
import secrets
import socket
from pathlib import Path
from typing import Any

import click

from ... import exit_codes
from ..host import Host, Stop, is_installed, require

#: Packages of the extra `serve`.
_PACKAGES = ("starlette", "uvicorn")


@click.command("serve")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--host", "address", default="127.0.0.1", show_default=True, help="Address to listen at.")
@click.option("--port", type=click.IntRange(0, 65535), default=8321, show_default=True, help="0 for any free one.")
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    help="Judgements at once; by default one per processor, or thread of the cluster.",
)
@click.option("--scheduler", metavar="ADDRESS", help="Judge on the workers of this Dask cluster.")
@click.option("--most", type=click.IntRange(min=1), default=10_000, show_default=True, help="Items that may wait.")
@click.option("--days", type=click.FloatRange(min=0), default=7.0, show_default=True, help="Answers are kept so long.")
@click.pass_obj
def serve_command(
    host: Host, folder: Path, address: str, port: int, workers: int | None, scheduler: str | None, most: int,
    days: float,
) -> int:  # fmt: skip
    """Judge what is asked over HTTP, until Ctrl-C. FOLDER keeps the queue and the token.

    POST /judgements takes JSON: the texts `candidate` and `spec`, and options of `opassay judge`; one or a list.
    GET /judgements/ID?wait=SECONDS gives the verdict. Each request has the header `Authorization: Bearer TOKEN`.
    What was accepted is judged, also by the next server, if this one is killed.
    \f

    Args:
        host: what surrounds the command. folder: of the queue; it is made where it is not there.
        address, port: to listen at. workers, scheduler, most, days: see the options.
    """
    for name in _PACKAGES:
        if not is_installed(name):
            raise Stop(exit_codes.USAGE, f'{name} is not installed; pip install "opassay[serve]"')
    require("torch", "mpmath", "msgspec")
    from .judges import ClusterJudge, ItemJudge, LocalJudge
    from .web import serve_folder

    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        _require_alone(lock.fileno(), folder)
        token, bound = _token_of(folder / "token"), _listen(address, port)
        click.echo(f"serving at http://{address}:{bound.getsockname()[1]}, token in {folder / 'token'}")
        # Judges are started with these; see `opassay judge`.
        os.environ.update(NUMPY_MADVISE_HUGEPAGE="0", OPENBLAS_NUM_THREADS="1", OMP_WAIT_POLICY="PASSIVE")
        judges: list[ItemJudge] = []
        if scheduler:
            client = _connect(scheduler)
            judges += [ClusterJudge(client) for _ in range(workers or sum(client.nthreads().values()) or 1)]
        else:
            judges += [LocalJudge() for _ in range(workers or os.cpu_count() or 1)]
        serve_folder(folder, token, bound, judges=judges, most=most, days=days)
    return exit_codes.OK


def _connect(scheduler: str) -> Any:
    """A client of a Dask cluster."""
    if not is_installed("distributed"):
        raise Stop(exit_codes.USAGE, 'distributed is not installed; pip install "opassay[cluster]"')
    import distributed

    try:
        return distributed.Client(scheduler, set_as_default=False, timeout=30)
    except (OSError, ValueError, TimeoutError) as err:
        raise Stop(exit_codes.USAGE, f"--scheduler: {scheduler}: {err}") from err


def _require_alone(handle: int, folder: Path) -> None:
    """Stop where another server has the folder: two would begin the same items."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise Stop(exit_codes.USAGE, f"{folder}: another server uses this folder") from None


def _token_of(path: Path) -> str:
    """The token of a file, which is made for its owner alone where it is not there."""
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_urlsafe(32))
    except FileExistsError:
        pass
    token = path.read_text().strip()
    if not token:
        raise Stop(exit_codes.USAGE, f"{path}: is empty, need a token")
    return token


def _listen(address: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        bound = socket.socket(family)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((address, port))
        bound.listen()  # whoever reads the address may connect at once, and waits until the server is there
    except OSError as err:
        raise Stop(exit_codes.USAGE, f"--port: cannot listen at {address}:{port}: {err.strerror}") from err
    return bound
