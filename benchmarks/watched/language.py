"""Language models of transformers, with random weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers
from torch import Tensor

import opassay

from .program import ADAMW_FUSED, ADAMW_LIST, ADAMW_LOOP, SGD_FUSED, SGD_LIST, SGD_LOOP, Choice, Program, draws

VOCABULARY = 120


def _small(size: int, **more: Any) -> dict[str, Any]:
    common = {"hidden_size": 64 * size, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": VOCABULARY}
    return common | {"intermediate_size": 128 * size, "pad_token_id": 0} | more


def _tokens(size: int) -> Tensor:
    _, below = draws()
    return 1 + below(VOCABULARY - 1, 2, 24 * size)


def _multiply_experts(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    """What transformers' own operator computes where a model with experts is compiled: a product for each expert."""
    starts = torch.cat([torch.zeros_like(ends[:1]), ends[:-1]])
    rows = torch.arange(len(x), device=x.device)[:, None]
    is_of = (rows >= starts) & (rows < ends)  # (rows, experts)
    return (is_of[:, :, None] * torch.einsum("sk,ekn->sen", x, weight)).sum(1)


def _multiply_experts_backward(x: Tensor, weight: Tensor, ends: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    of_x, of_weight = torch.func.vjp(lambda x, w: _multiply_experts(x, w, ends), x, weight)[1](g)
    return of_x, of_weight


opassay.spec("transformers::grouped_mm_fallback", _multiply_experts)
opassay.spec("transformers::grouped_mm_fallback_backward", _multiply_experts_backward)


def of_tokens(model: torch.nn.Module, tokens: Tensor, choice: Choice = ADAMW_LIST) -> Program:
    """Predicts the tokens that it is given; without dropout."""
    return Program(model.eval(), lambda module: module(input_ids=tokens, labels=tokens).loss, choice)


def gpt2(size: int) -> Program:
    model = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(n_embd=64 * size, n_layer=2, n_head=4, vocab_size=VOCABULARY)
    )
    return of_tokens(model, _tokens(size), ADAMW_FUSED)


def gpt2_eager(size: int) -> Program:
    """With attention in single calls."""
    config = transformers.GPT2Config(
        n_embd=64 * size, n_layer=2, n_head=4, vocab_size=VOCABULARY, attn_implementation="eager"
    )
    return of_tokens(transformers.GPT2LMHeadModel(config), _tokens(size), SGD_LOOP)


def llama(size: int) -> Program:
    config = transformers.LlamaConfig(**_small(size), num_key_value_heads=2)
    return of_tokens(transformers.LlamaForCausalLM(config), _tokens(size), ADAMW_LIST)


def qwen3(size: int) -> Program:
    config = transformers.Qwen3Config(**_small(size), num_key_value_heads=2, head_dim=16 * size)
    return of_tokens(transformers.Qwen3ForCausalLM(config), _tokens(size), ADAMW_LOOP)


def qwen3_experts(size: int) -> Program:
    config = transformers.Qwen3MoeConfig(
        **_small(size),
        num_key_value_heads=2,
        head_dim=16 * size,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=64,
        output_router_logits=True,
    )
    return of_tokens(transformers.Qwen3MoeForCausalLM(config), _tokens(size), ADAMW_LIST)


def mixtral(size: int) -> Program:
    config = transformers.MixtralConfig(**_small(size), num_key_value_heads=2, num_local_experts=4)
    return of_tokens(transformers.MixtralForCausalLM(config), _tokens(size), SGD_LIST)


def gemma2(size: int) -> Program:
    """Logits capped by tanh, every other layer with a sliding window."""
    config = transformers.Gemma2Config(
        **_small(size), num_key_value_heads=2, head_dim=16 * size, sliding_window=8, attn_implementation="eager"
    )
    return of_tokens(transformers.Gemma2ForCausalLM(config), _tokens(size), ADAMW_FUSED)


def gpt_neox(size: int) -> Program:
    return of_tokens(transformers.GPTNeoXForCausalLM(transformers.GPTNeoXConfig(**_small(size))), _tokens(size))


def phi(size: int) -> Program:
    return of_tokens(transformers.PhiForCausalLM(transformers.PhiConfig(**_small(size))), _tokens(size), SGD_FUSED)


def deepseek(size: int) -> Program:
    """Latent attention, and experts in groups with a bias of the router."""
    config = transformers.DeepseekV3Config(
        **_small(size),
        num_key_value_heads=4,
        q_lora_rank=32,
        kv_lora_rank=16,
        qk_rope_head_dim=8,
        qk_nope_head_dim=16,
        v_head_dim=16,
        n_routed_experts=8,
        n_shared_experts=1,
        num_experts_per_tok=2,
        n_group=2,
        topk_group=1,
        first_k_dense_replace=1,
        moe_intermediate_size=32,
    )
    return of_tokens(transformers.DeepseekV3ForCausalLM(config), _tokens(size))


def bloom(size: int) -> Program:
    """Attention with linear biases (ALiBi)."""
    config = transformers.BloomConfig(hidden_size=64 * size, n_layer=2, n_head=4, vocab_size=VOCABULARY)
    return of_tokens(transformers.BloomForCausalLM(config), _tokens(size), SGD_LIST)


def bert(size: int) -> Program:
    return of_tokens(transformers.BertForMaskedLM(transformers.BertConfig(**_small(size))), _tokens(size), ADAMW_LOOP)


def t5(size: int) -> Program:
    config = transformers.T5Config(
        d_model=64 * size,
        d_kv=16 * size,
        d_ff=128 * size,
        num_layers=2,
        num_heads=4,
        vocab_size=VOCABULARY,
        decoder_start_token_id=0,
        pad_token_id=0,
    )
    return of_tokens(transformers.T5ForConditionalGeneration(config), _tokens(size), ADAMW_FUSED)


def mamba(size: int) -> Program:
    config = transformers.MambaConfig(hidden_size=32 * size, num_hidden_layers=2, vocab_size=VOCABULARY, state_size=8)
    return of_tokens(transformers.MambaForCausalLM(config), _tokens(size)[:, :16], ADAMW_LIST)


def rwkv(size: int) -> Program:
    config = transformers.RwkvConfig(
        hidden_size=32 * size, num_hidden_layers=2, vocab_size=VOCABULARY, context_length=64
    )
    return Program(transformers.RwkvForCausalLM(config).train(), _predicted(_tokens(size)), SGD_FUSED)


def _predicted(tokens: Tensor) -> Callable[[torch.nn.Module], Tensor]:
    return lambda module: module(input_ids=tokens, labels=tokens, use_cache=False).loss


def perceiver(size: int) -> Program:
    config = transformers.PerceiverConfig(
        num_latents=8 * size,
        d_latents=32 * size,
        d_model=32 * size,
        num_self_attends_per_block=2,
        num_self_attention_heads=4,
        num_cross_attention_heads=4,
        vocab_size=VOCABULARY,
        max_position_embeddings=24 * size,
        qk_channels=32 * size,
        v_channels=32 * size,
    )
    return of_tokens(transformers.PerceiverForMaskedLM(config), _tokens(size), SGD_LOOP)
