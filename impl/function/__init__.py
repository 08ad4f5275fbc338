"""Custom autograd functions that work under every transform, and the machinery that makes them do so."""

from .contexts import CtxCustomSave as CtxCustomSave
from .contexts import CtxWithSavedTensors as CtxWithSavedTensors
from .contexts import WrappedCtx as WrappedCtx
from .function import Function as Function
from .rewritten import AutogradFunctionApply as AutogradFunctionApply
from .rewritten import autograd_function_apply as autograd_function_apply
from .rewritten import autograd_function_forward_rewritten as autograd_function_forward_rewritten
from .rules import VmapInfo as VmapInfo
from .rules import custom_function_call as custom_function_call
from .rules import generate_single_level_function as generate_single_level_function
from .rules import has_overridden_vmap_rule as has_overridden_vmap_rule
from .rules import validate_vmap_returns_tuple_of_two_elements as validate_vmap_returns_tuple_of_two_elements
from .vmapify import get_tangents_in_dims as get_tangents_in_dims
from .vmapify import reductify as reductify
from .vmapify import reductify_leaf as reductify_leaf
from .vmapify import vmapify_autograd_function as vmapify_autograd_function
from .wrapping import wrap_outputs_maintaining_identity as wrap_outputs_maintaining_identity
