"""Ranks, each a program of its own: what they ask of each other, on what it runs, and batch norm over all of them."""

from .base import Comm as Comm
from .base import SoloComm as SoloComm
from .board import Board as Board
from .call import Call as Call
from .call import CommError as CommError
from .lockstep import LockstepComm as LockstepComm
from .lockstep import LockstepWorld as LockstepWorld
from .predicted import DryComm as DryComm
from .predicted import Network as Network
from .process_group import TorchComm as TorchComm
from .sync_batch_norm import sync_batch_norm as sync_batch_norm
from .sync_batch_norm_module import SyncBatchNorm as SyncBatchNorm
from .sync_batch_norm_module import convert_sync_batchnorm as convert_sync_batchnorm
