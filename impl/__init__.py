"""What SHIPS: production PyTorch ops."""

import types as _types

# `import X as X` tells type checkers that a name is offered on purpose, and linters that it is not unused.
from . import decompositions as decompositions
from .comm import Broadcast as Broadcast
from .comm import Gather as Gather
from .comm import ReduceAddCoalesced as ReduceAddCoalesced
from .comm import Scatter as Scatter
from .comm import SyncBatchNorm as SyncBatchNorm
from .comm import broadcast as broadcast
from .comm import convert_sync_batchnorm as convert_sync_batchnorm
from .comm import gather as gather
from .comm import get_stream as get_stream
from .comm import reduce_add_coalesced as reduce_add_coalesced
from .comm import scatter as scatter
from .comm import sync_batch_norm as sync_batch_norm
from .function import Function as Function
from .hooks import BackwardHookFunction as BackwardHookFunction
from .hooks import backward_hook_identity as backward_hook_identity
from .linalg.trace import trace as trace
from .losses.public import cross_entropy as cross_entropy
from .losses.public import nll_loss as nll_loss
from .losses.public import nll_loss2d_backward as nll_loss2d_backward
from .losses.public import nll_loss2d_forward as nll_loss2d_forward
from .losses.public import nll_loss_backward as nll_loss_backward
from .losses.public import nll_loss_forward as nll_loss_forward
from .norms.aten_names import batch_norm_backward as batch_norm_backward
from .norms.aten_names import cudnn_batch_norm as cudnn_batch_norm
from .norms.aten_names import cudnn_batch_norm_backward as cudnn_batch_norm_backward
from .norms.aten_names import miopen_batch_norm as miopen_batch_norm
from .norms.aten_names import miopen_batch_norm_backward as miopen_batch_norm_backward
from .norms.aten_names import native_batch_norm as native_batch_norm
from .norms.aten_names import native_batch_norm_backward as native_batch_norm_backward
from .norms.aten_names import native_batch_norm_legit as native_batch_norm_legit
from .norms.aten_names import native_batch_norm_legit_no_stats as native_batch_norm_legit_no_stats
from .norms.batch_norm import batch_norm as batch_norm
from .norms.group_norm import group_norm as group_norm
from .norms.group_norm import native_group_norm as native_group_norm
from .norms.group_norm import native_group_norm_backward as native_group_norm_backward
from .norms.layer_norm import layer_norm as layer_norm
from .norms.layer_norm import native_layer_norm as native_layer_norm
from .norms.layer_norm import native_layer_norm_backward as native_layer_norm_backward
from .norms.modules import BatchNorm1d as BatchNorm1d
from .norms.modules import BatchNorm2d as BatchNorm2d
from .norms.modules import BatchNorm3d as BatchNorm3d
from .norms.modules import GroupNorm as GroupNorm
from .norms.modules import LayerNorm as LayerNorm
from .norms.modules import RMSNorm as RMSNorm
from .norms.rms_norm import fused_add_rms_norm as fused_add_rms_norm
from .norms.rms_norm import fused_rms_norm as fused_rms_norm
from .norms.rms_norm import fused_rms_norm_backward as fused_rms_norm_backward
from .norms.rms_norm import rms_norm as rms_norm
from .pointwise.log_sigmoid import log_sigmoid as log_sigmoid
from .pointwise.log_sigmoid import log_sigmoid_backward as log_sigmoid_backward
from .pointwise.log_sigmoid import log_sigmoid_forward as log_sigmoid_forward
from .response_norm.public import CrossMapLRN2d as CrossMapLRN2d
from .response_norm.public import cross_map_lrn2d as cross_map_lrn2d
from .softmax.public import log_softmax as log_softmax
from .softmax.public import log_softmax_backward_data as log_softmax_backward_data
from .softmax.public import softmax as softmax
from .softmax.public import softmax_backward_data as softmax_backward_data


def __dir__() -> list[str]:
    """The public ops, classes and modules of this package, sorted, without the other folders in which they stand."""
    named = {"comm", "decompositions"}  # the modules that are meant to be used by name
    return sorted(
        name
        for name, value in globals().items()
        if not name.startswith("_") and (name in named or not isinstance(value, _types.ModuleType))
    )
