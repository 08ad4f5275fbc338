"""Several devices under one program: what moves tensors between them, and the sums, parts and copies made of it."""

from .differentiable import Broadcast as Broadcast
from .differentiable import Copy as Copy
from .differentiable import Gather as Gather
from .differentiable import ReduceAddCoalesced as ReduceAddCoalesced
from .differentiable import Scatter as Scatter
from .fabric import CudaFabric as CudaFabric
from .fabric import Fabric as Fabric
from .fabric import FoldedFabric as FoldedFabric
from .fabric import TorchFabric as TorchFabric
from .fabric import get_stream as get_stream
from .functions import broadcast as broadcast
from .functions import broadcast_coalesced as broadcast_coalesced
from .functions import gather as gather
from .functions import reduce_add as reduce_add
from .functions import reduce_add_coalesced as reduce_add_coalesced
from .functions import scatter as scatter
from .host_fabric import HostFabric as HostFabric
from .host_fabric import RaceError as RaceError
