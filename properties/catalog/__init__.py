"""The declarations. `CATALOG` maps each op's name to the module here that declares it.

A module of an op has, as far as it needs them and in this order: samples, promises, laws, refusals, declarations.
"""

_OPS = (
    ("norms.layer_norm", "layer_norm", "native_layer_norm", "native_layer_norm_backward"),
    ("norms.rms_norm", "rms_norm", "fused_rms_norm", "fused_rms_norm_backward", "fused_add_rms_norm"),
    ("norms.group_norm", "group_norm", "native_group_norm", "native_group_norm_backward"),
    ("norms.batch_norm", "batch_norm", "native_batch_norm", "native_batch_norm_legit",
     "native_batch_norm_legit_no_stats"),
    ("norms.batch_norm_backward", "native_batch_norm_backward", "batch_norm_backward", "cudnn_batch_norm_backward",
     "miopen_batch_norm_backward"),
    ("norms.batch_norm", "cudnn_batch_norm", "miopen_batch_norm"),
    ("softmax", "softmax", "log_softmax", "softmax_backward_data", "log_softmax_backward_data"),
    ("losses", "nll_loss", "nll_loss_forward", "nll_loss_backward", "nll_loss2d_forward", "nll_loss2d_backward",
     "cross_entropy"),
    ("pointwise", "log_sigmoid", "log_sigmoid_forward", "log_sigmoid_backward"),
    ("linalg", "trace"),
    ("response_norm", "cross_map_lrn2d"),
    ("hooks", "backward_hook_identity"),
    ("norms.batch_norm", "sync_batch_norm"),
    ("collectives.declarations", "broadcast", "reduce_add_coalesced", "gather", "scatter"),
)  # fmt: skip
CATALOG: dict[str, str] = {op: module for module, *ops in _OPS for op in ops}
