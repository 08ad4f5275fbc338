"""Ranks that compute together: what they may ask of each other, and batch norm over all of them."""

from .base import Comm as Comm
from .base import SoloComm as SoloComm
from .board import Board as Board
from .call import Call as Call
from .call import CommError as CommError
from .dry import DryComm as DryComm
from .dry import Network as Network
from .lockstep import LockstepComm as LockstepComm
from .lockstep import LockstepWorld as LockstepWorld
from .lockstep import Slip as Slip
from .module import SyncBatchNorm as SyncBatchNorm
from .module import convert_sync_batchnorm as convert_sync_batchnorm
from .reduction import AllReduce as AllReduce
from .sync_batch_norm import sync_batch_norm as sync_batch_norm
from .torch_comm import TorchComm as TorchComm
