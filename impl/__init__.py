"""What SHIPS: production PyTorch ops."""

from .normalization.layer_norm import LayerNorm as LayerNorm
from .normalization.layer_norm import layer_norm as layer_norm
from .normalization.layer_norm import native_layer_norm as native_layer_norm
from .normalization.layer_norm import native_layer_norm_backward as native_layer_norm_backward
