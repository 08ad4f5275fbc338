"""Decompositions by which torch's own forward AD of aten ops can be made right.

Where an aten op has no formula of its own for forward AD, torch runs a decomposition of it as soon as one of its
inputs carries a tangent, and takes the *value* from there as well. Torch's decompositions round the half types at
every step, return zeros where the op returns nothing, and mix up which gradients were asked for; so values and dtypes
change because a tangent is present. The decompositions here compute the value by the op itself and only its
derivatives by an expression, in float32 for the half types.

Which ops this can change (torch 2.11 to 2.13, measured by forward AD with an empty registry): the nine that are
`installable` below. `trace` and `log_sigmoid_forward` have formulas of their own, which come first: their entries
serve whoever reads the table, and no installation changes them.

Torch registers its decompositions when the first dual tensor of a process is made, and keeps the first registration
of an op for good. So `install_jvp_decompositions` must come before any forward AD, and cannot be undone; what can be
switched is which of the two a registered op runs, `jvp_decompositions`.
"""

from .forward_ad.adapters import _log_softmax_backward_data as _log_softmax_backward_data
from .forward_ad.adapters import _softmax_backward_data as _softmax_backward_data
from .forward_ad.adapters import batch_norm_backward as batch_norm_backward
from .forward_ad.adapters import cudnn_batch_norm_backward as cudnn_batch_norm_backward
from .forward_ad.adapters import log_sigmoid_forward as log_sigmoid_forward
from .forward_ad.adapters import miopen_batch_norm_backward as miopen_batch_norm_backward
from .forward_ad.adapters import native_batch_norm_backward as native_batch_norm_backward
from .forward_ad.adapters import native_layer_norm_backward as native_layer_norm_backward
from .forward_ad.adapters import nll_loss2d_backward as nll_loss2d_backward
from .forward_ad.adapters import nll_loss_backward as nll_loss_backward
from .forward_ad.adapters import trace as trace
from .forward_ad.registry import TooLateError as TooLateError
from .forward_ad.registry import decomposition_table_for_jvp as decomposition_table_for_jvp
from .forward_ad.registry import install_jvp_decompositions as install_jvp_decompositions
from .forward_ad.registry import installable as installable
from .forward_ad.registry import installed as installed
from .forward_ad.registry import jvp_decompositions as jvp_decompositions
from .forward_ad.registry import maybe_register_decomposition as maybe_register_decomposition
from .forward_ad.registry import overload_of as overload_of
from .forward_ad.registry import register_decomposition_for_jvp as register_decomposition_for_jvp
from .norms.expressions import recompute_mean_var as recompute_mean_var
