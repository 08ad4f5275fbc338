"""Models of sound and of sequences, recurrent and otherwise."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from torch.nn import functional as F

from .program import ADAMW_FUSED, ADAMW_LIST, ADAMW_LOOP, SGD_FUSED, SGD_LIST, SGD_LOOP, Program, draws, dtype_of

TOKENS = 50


def _next_token(tokens: Tensor) -> Callable[[nn.Module], Tensor]:
    return lambda module: F.cross_entropy(module(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


def whisper(size: int) -> Program:
    config = transformers.WhisperConfig(
        vocab_size=99,
        d_model=32 * size,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        num_mel_bins=8,
        max_source_positions=16,
        max_target_positions=16,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    normal, below = draws()
    sound, text = normal(2, 8, 32), 3 + below(96, 2, 6)

    def loss(module: nn.Module) -> Tensor:
        return module(input_features=sound.to(dtype_of(module)), labels=text).loss

    return Program(transformers.WhisperForConditionalGeneration(config).eval(), loss, ADAMW_LIST)


def wav2vec(size: int) -> Program:
    """A convolutional encoder of a wave, attention with positions by a convolution whose weight is normed, and CTC."""
    config = transformers.Wav2Vec2Config(
        vocab_size=20,
        hidden_size=32 * size,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        conv_dim=(16, 16, 16),
        conv_kernel=(8, 4, 4),
        conv_stride=(4, 2, 2),
        num_feat_extract_layers=3,
        num_conv_pos_embeddings=8,
        num_conv_pos_embedding_groups=4,
        mask_time_prob=0.0,
        layerdrop=0.0,
        pad_token_id=0,
    )
    normal, below = draws()
    wave, text = normal(2, 400), 1 + below(19, 2, 5)

    def loss(module: nn.Module) -> Tensor:
        return module(wave.to(dtype_of(module)), labels=text).loss

    return Program(transformers.Wav2Vec2ForCTC(config).eval(), loss, ADAMW_LOOP)


class Recurrent(nn.Module):
    """An embedding, layers of a recurrent class, and logits."""

    def __init__(self, layers: type[nn.RNNBase], width: int, **more: Any) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, 16)
        self.layers = layers(16, width, batch_first=True, **more)
        self.head = nn.Linear(width * (2 if more.get("bidirectional") else 1), TOKENS)

    def forward(self, tokens: Tensor) -> Tensor:
        # Recurrent layers of bfloat16 have no product on processors without its instructions.
        with torch.autocast("cpu", enabled=False):
            return self.head(self.layers(self.embedding(tokens))[0])


def lstm(size: int) -> Program:
    _, below = draws()
    return Program(Recurrent(nn.LSTM, 24 * size, num_layers=2), _next_token(below(TOKENS, 2, 12)), ADAMW_FUSED)


def lstm_projected(size: int) -> Program:
    """Both ways, with a smaller hidden state."""
    _, below = draws()
    module = Recurrent(nn.LSTM, 12 * size, bidirectional=True)
    module.layers = nn.LSTM(16, 24 * size, proj_size=12 * size, bidirectional=True, batch_first=True)
    return Program(module, _next_token(below(TOKENS, 2, 8)), SGD_LIST)


def gru(size: int) -> Program:
    _, below = draws()
    return Program(Recurrent(nn.GRU, 24 * size, num_layers=2), _next_token(below(TOKENS, 2, 12)), SGD_LOOP)


def rnn(size: int) -> Program:
    _, below = draws()
    module = Recurrent(nn.RNN, 24 * size, nonlinearity="relu")
    return Program(module, _next_token(below(TOKENS, 2, 12)), ADAMW_LOOP)


def linear_attention(size: int) -> Program:
    """A matrix as state that decays elementwise, as in RWKV and in gated linear attention."""
    _, below = draws()
    return Program(Decaying(16 * size), _next_token(below(TOKENS, 2, 12)), ADAMW_LIST)


class Decaying(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.embedding, self.norm, self.head = (
            nn.Embedding(TOKENS, width),
            nn.GroupNorm(2, width),
            nn.Linear(width, TOKENS),
        )
        self.r, self.k, self.v, self.w = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        r, k, v, w = torch.sigmoid(self.r(x)), self.k(x), self.v(x), torch.exp(-torch.exp(self.w(x)))
        state, rows = x.new_zeros(x.shape[0], x.shape[2], x.shape[2]), []
        for t in range(x.shape[1]):
            state = state * w[:, t, :, None] + torch.einsum("bi,bj->bij", k[:, t], v[:, t])
            rows.append(torch.einsum("bi,bij->bj", r[:, t], state))
        y = torch.stack(rows, 1)
        return self.head(self.norm(y.flatten(0, 1)).view_as(y))


def transformer_xl(size: int) -> Program:
    """Attention to a memory and by relative position."""
    normal, below = draws()
    memory, tokens = normal(2, 6, 32 * size), below(TOKENS, 2, 11)

    def loss(module: nn.Module) -> Tensor:
        logits = module(tokens[:, :-1], memory.to(dtype_of(module)))
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    return Program(Relative(32 * size), loss, ADAMW_FUSED)


class Relative(nn.Module):
    """One layer of Transformer-XL."""

    def __init__(self, width: int, heads: int = 2) -> None:
        super().__init__()
        self.heads, self.norm = heads, nn.LayerNorm(width)
        self.embedding, self.head = nn.Embedding(TOKENS, width), nn.Linear(width, TOKENS)
        self.q, self.kv, self.r = nn.Linear(width, width), nn.Linear(width, 2 * width), nn.Linear(width, width)
        self.u, self.w = (
            nn.Parameter(torch.randn(heads, 1, width // heads)),
            nn.Parameter(torch.zeros(heads, 1, width // heads)),
        )

    def forward(self, tokens: Tensor, memory: Tensor) -> Tensor:
        x = self.embedding(tokens)
        q, (k, v) = self.split(self.q(x)), map(self.split, self.kv(torch.cat([memory, x], 1)).chunk(2, -1))
        length, reach = q.shape[2], k.shape[2]
        steps = torch.arange(reach - 1, -1, -1, dtype=x.dtype)[:, None]
        angles = steps * torch.exp(-torch.arange(0, x.shape[-1], 2, dtype=x.dtype) * math.log(10000) / x.shape[-1])
        r = self.split(self.r(torch.cat([angles.sin(), angles.cos()], -1))[None])
        by_position = (q + self.w) @ r.transpose(-1, -2)
        by_position = (
            F.pad(by_position, (1, 0)).reshape(*q.shape[:2], reach + 1, length)[:, :, 1:].reshape(by_position.shape)
        )
        scores = ((q + self.u) @ k.transpose(-1, -2) + by_position) * q.shape[-1] ** -0.5
        future = torch.ones(length, reach, dtype=torch.bool).triu(1 + reach - length)
        y = torch.softmax(scores.masked_fill(future, -torch.inf), -1) @ v
        return self.head(self.norm(x + y.transpose(1, 2).flatten(2)))

    def split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)


def tcn(size: int) -> Program:
    """Dilated causal convolutions whose weights are normed, with a gate."""
    _, below = draws()
    return Program(Dilated(16 * size), _next_token(below(TOKENS, 2, 24)), SGD_FUSED)


class Dilated(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(TOKENS, width), nn.Linear(width, TOKENS)
        normed = nn.utils.parametrizations.weight_norm
        self.layers = nn.ModuleList(normed(nn.Conv1d(width, 2 * width, 3, dilation=d)) for d in (1, 2, 4))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens).transpose(1, 2)
        for layer in self.layers:
            x = x + F.glu(layer(F.pad(x, (2 * layer.dilation[0], 0))), 1)
        return self.head(x.transpose(1, 2))


def ctc(size: int) -> Program:
    """Speech: a convolution, a recurrent layer of both ways, and CTC."""
    normal, below = draws()
    sound, text = normal(3, 8, 40), 1 + below(19, 3, 6)
    lengths, ends = torch.tensor([20, 18, 15]), torch.tensor([6, 4, 5])
    module = nn.ModuleDict(
        {
            "conv": nn.Conv1d(8, 16 * size, 3, 2, 1),
            "layers": nn.GRU(16 * size, 16, bidirectional=True),
            "head": nn.Linear(32, 20),
        }
    )

    def loss(module: Any) -> Tensor:
        x = F.hardtanh(module["conv"](sound.to(dtype_of(module))), 0, 20).permute(2, 0, 1)
        logits = module["head"](module["layers"](x)[0]).float()
        return F.ctc_loss(torch.log_softmax(logits, -1), text, lengths, ends)

    return Program(module, loss, ADAMW_FUSED)


def crf(size: int) -> Program:
    """Labels of a sequence: the score of the right path, less the logarithm of the sum over all paths."""
    normal, below = draws()
    words, labels = normal(2, 10, 16 * size), below(7, 2, 10)

    def loss(module: Any) -> Tensor:
        scores, moves = module["head"](words.to(dtype_of(module))), module["moves"].weight
        right = scores.gather(2, labels[..., None]).sum((1, 2)) + moves[labels[:, :-1], labels[:, 1:]].sum(1)
        total = scores[:, 0]
        for t in range(1, scores.shape[1]):
            total = torch.logsumexp(total[:, :, None] + moves, 1) + scores[:, t]
        return (torch.logsumexp(total, 1) - right).mean()

    return Program(nn.ModuleDict({"head": nn.Linear(16 * size, 7), "moves": nn.Embedding(7, 7)}), loss, ADAMW_LIST)


def spectrogram(size: int) -> Program:
    """The spectrum of a wave, windowed, through a convolution; and the distance of spectra in decibels."""
    normal, _ = draws()
    wave, aim = normal(2, 256 * size), normal(2, 256 * size)

    def loss(module: nn.Module) -> Tensor:
        result = module(wave.to(dtype_of(module))[:, None])[:, 0]
        wide = torch.promote_types(result.dtype, torch.float32)
        window = torch.hann_window(32).to(wide)
        spectra = (torch.stft(x.to(wide), 32, 8, window=window, return_complex=True) for x in (result, aim))
        return F.l1_loss(*(torch.log1p(spectrum.abs()) for spectrum in spectra))

    layers = nn.Sequential(nn.Conv1d(1, 8, 9, padding=4), nn.Mish(), nn.Conv1d(8, 1, 9, padding=4))
    return Program(layers, loss, SGD_LIST)
