"""Models of pictures and sounds: those of transformers, and some written out."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import transformers
from torch import Tensor, nn
from torch.nn import functional as F

from .program import ADAMW_FUSED, ADAMW_LIST, ADAMW_LOOP, SGD_FUSED, SGD_LIST, SGD_LOOP, Program, draws, dtype_of

CLASSES = 5


def _labelled(pictures: Tensor) -> Callable[[nn.Module], Tensor]:
    """The loss of a model of transformers that names the class of a picture."""
    labels = torch.arange(len(pictures)) % CLASSES
    return lambda module: module(pixel_values=pictures.to(dtype_of(module)), labels=labels).loss


def _classified(pictures: Tensor) -> Callable[[nn.Module], Tensor]:
    labels = torch.arange(len(pictures)) % CLASSES
    return lambda module: F.cross_entropy(module(pictures.to(dtype_of(module))), labels, label_smoothing=0.1)


def vit(size: int) -> Program:
    config = transformers.ViTConfig(
        hidden_size=64 * size,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128 * size,
        image_size=32 * size,
        patch_size=8,
        num_labels=CLASSES,
    )
    normal, _ = draws()
    module = transformers.ViTForImageClassification(config)
    return Program(module.eval(), _labelled(normal(2, 3, 32 * size, 32 * size)), ADAMW_FUSED)


def swin(size: int) -> Program:
    """Attention in shifted windows, with a bias by relative position."""
    config = transformers.SwinConfig(
        embed_dim=16 * size, depths=[2, 2], num_heads=[2, 4], window_size=4, image_size=32, patch_size=2,
        num_labels=CLASSES,
    )  # fmt: skip
    normal, _ = draws()
    module = transformers.SwinForImageClassification(config)
    return Program(module.eval(), _labelled(normal(2, 3, 32, 32)), ADAMW_LIST)


def convnext(size: int) -> Program:
    config = transformers.ConvNextConfig(
        hidden_sizes=[16 * size, 32 * size], depths=[1, 2], num_stages=2, image_size=32, num_labels=CLASSES
    )
    normal, _ = draws()
    module = transformers.ConvNextForImageClassification(config)
    return Program(module.eval(), _labelled(normal(2, 3, 32, 32)), SGD_LIST)


def mobilenet(size: int) -> Program:
    """Convolutions of single channels, and channels weighed by a squeezed mean; with the statistics of a batch."""
    normal, _ = draws()
    return Program(Depthwise(16 * size).train(), _classified(normal(4, 3, 16, 16)), SGD_LOOP)


class Depthwise(nn.Module):
    """Two blocks of EfficientNet."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.blocks = nn.ModuleList(Squeezed(width, stride) for stride in (1, 2))
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = F.hardswish(self.stem(x))
        for block in self.blocks:
            x = block(x)
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


class Squeezed(nn.Module):
    """Wider by a convolution of one pixel, one of each channel alone, a weight for each channel, and narrower again."""

    def __init__(self, width: int, stride: int) -> None:
        super().__init__()
        wide = 2 * width
        self.wider, self.norm1 = nn.Conv2d(width, wide, 1, bias=False), nn.BatchNorm2d(wide)
        self.each = nn.Conv2d(wide, wide, 5, stride, 2, groups=wide, bias=False)
        self.norm2 = nn.BatchNorm2d(wide)
        self.down, self.up = nn.Conv2d(wide, wide // 4, 1), nn.Conv2d(wide // 4, wide, 1)
        self.narrower, self.norm3 = nn.Conv2d(wide, width, 1, bias=False), nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        y = F.silu(self.norm2(self.each(F.silu(self.norm1(self.wider(x))))), inplace=True)
        y = y * torch.sigmoid(self.up(F.relu6(self.down(y.mean((2, 3), keepdim=True)))))
        y = self.norm3(self.narrower(y))
        return x + y if y.shape == x.shape else y


def resnet(size: int) -> Program:
    normal, _ = draws()
    return Program(Residual(8 * size).train(), _classified(normal(4, 3, 16, 16)), SGD_LIST)


class Residual(nn.Module):
    """A stem with pooling and one residual block with a stride; sums and ReLUs in place."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.stem, self.norm0 = nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.conv1 = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1, bias=False)
        self.conv2 = nn.Conv2d(2 * width, 2 * width, 3, padding=1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(2 * width), nn.BatchNorm2d(2 * width)
        self.beside = nn.Conv2d(width, 2 * width, 1, stride=2)
        self.head = nn.Linear(2 * width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.norm0(self.stem(x)), inplace=True), 2)
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)), inplace=True)))
        y += self.beside(x)
        return self.head(F.adaptive_avg_pool2d(F.relu(y, inplace=True), 1).flatten(1))


def mixer(size: int) -> Program:
    """MLP-Mixer."""
    normal, _ = draws()
    return Program(Mixer(32 * size, 16 * size * size), _classified(normal(2, 3, 16 * size, 16 * size)), ADAMW_LOOP)


class Mixer(nn.Module):
    """Patches, mixed along positions and along channels in turn."""

    def __init__(self, width: int, patches: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 4, stride=4)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.along_positions = nn.Sequential(nn.Linear(patches, 32), nn.GELU(), nn.Linear(32, patches))
        self.along_channels = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x).flatten(2).transpose(1, 2)
        x = x + self.along_positions(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        x = x + self.along_channels(self.norm2(x))
        return self.head(x.mean(1))


def capsules(size: int) -> Program:
    normal, _ = draws()
    return Program(Capsules(8 * size), _classified(normal(2, 3, 12, 12)), ADAMW_FUSED)


class Capsules(nn.Module):
    """Vectors of local features, routed to classes by agreement in three rounds."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4 * width, 3, stride=3)
        self.votes = nn.Parameter(torch.randn(16 * width, CLASSES, 4, 4) / 4)

    @staticmethod
    def squash(x: Tensor) -> Tensor:
        square = x.square().sum(-1, keepdim=True)
        return square / (1 + square) * x * torch.rsqrt(square + 1e-6)

    def forward(self, x: Tensor) -> Tensor:
        x = self.squash(self.stem(x).flatten(1).unflatten(1, (-1, 4)))
        votes = torch.einsum("bij,icjk->bick", x, self.votes)
        logits, outcome = votes.new_zeros(votes.shape[:-1]), votes
        for _ in range(3):
            outcome = self.squash((torch.softmax(logits, -1)[..., None] * votes).sum(1))
            logits = logits + (votes * outcome[:, None]).sum(-1)
        return torch.linalg.vector_norm(outcome, dim=-1)


def unet(size: int) -> Program:
    """The step of a diffusion model: the noise in pictures, at two times."""
    normal, _ = draws()
    clean, noise, times = normal(2, 3, 16, 16), normal(2, 3, 16, 16), torch.tensor([3.0, 40.0])
    share = torch.exp(-times / 50)[:, None, None, None]
    noisy = share.sqrt() * clean + (1 - share).sqrt() * noise

    def loss(module: nn.Module) -> Tensor:
        dtype = dtype_of(module)
        return F.mse_loss(module(noisy.to(dtype), times.to(dtype)), noise.to(dtype))

    return Program(UNet(16 * size), loss, ADAMW_LIST)


class UNet(nn.Module):
    """One step down with attention and one up, with the sines of the time added."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.stem, self.time = nn.Conv2d(3, width, 3, padding=1), nn.Linear(16, width)
        self.norm1, self.conv1 = nn.GroupNorm(4, width), nn.Conv2d(width, width, 3, padding=1)
        self.down = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.norm2, self.qkv = nn.GroupNorm(4, 2 * width), nn.Conv2d(2 * width, 6 * width, 1)
        self.mixed = nn.Conv2d(2 * width, 2 * width, 1)
        self.up, self.conv2 = (
            nn.ConvTranspose2d(2 * width, width, 2, stride=2),
            nn.Conv2d(3 * width, width, 3, padding=1),
        )
        self.norm3, self.head = nn.GroupNorm(4, width), nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        angles = time[:, None] * torch.exp(-torch.arange(8, dtype=x.dtype) * math.log(10000) / 8)
        embedded = F.silu(torch.cat([torch.sin(angles), torch.cos(angles)], -1))
        x = self.stem(x)
        x = x + self.conv1(F.silu(self.norm1(x))) + self.time(embedded)[:, :, None, None]
        low = self.down(x)
        q, k, v = self.qkv(self.norm2(low)).flatten(2).unflatten(1, (3, 2, -1)).transpose(-1, -2).unbind(1)
        low = low + self.mixed(F.scaled_dot_product_attention(q, k, v).transpose(-1, -2).reshape(low.shape))
        both = torch.cat([self.up(low), F.interpolate(low, scale_factor=2, mode="nearest")], 1)
        return self.head(F.silu(self.norm3(self.conv2(both))))


def autoencoder(size: int) -> Program:
    """Convolutions down and transposed ones up, with the norm of each picture alone."""
    normal, _ = draws()
    width, pictures = 8 * size, normal(2, 3, 16, 16)
    down = [nn.Conv2d(3, width, 4, 2, 1), nn.InstanceNorm2d(width, affine=True), nn.LeakyReLU(0.2)]
    down += [nn.Conv2d(width, 2 * width, 4, 2, 1), nn.PReLU(2 * width)]
    up = [nn.ConvTranspose2d(2 * width, width, 4, 2, 1), nn.ELU(), nn.Upsample(scale_factor=2, mode="bilinear")]
    module = nn.Sequential(*down, *up, nn.Conv2d(width, 3, 3, padding=1, padding_mode="reflect"), nn.Tanh())

    def loss(module: nn.Module) -> Tensor:
        x = pictures.to(dtype_of(module))
        return F.smooth_l1_loss(module(x), x)

    return Program(module, loss, ADAMW_FUSED)


def clip(size: int) -> Program:
    """Pictures and sentences that belong together, by contrast."""
    part = {"hidden_size": 32 * size, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    text = part | {"vocab_size": 99, "max_position_embeddings": 16, "projection_dim": 16, "pad_token_id": 1}
    text |= {"eos_token_id": 98, "bos_token_id": 97}
    picture = part | {"image_size": 16, "patch_size": 8, "projection_dim": 16}
    config = transformers.CLIPConfig(text_config=text, vision_config=picture, projection_dim=16)
    normal, below = draws()
    pictures, tokens = normal(3, 3, 16, 16), 2 + below(95, 3, 8)
    tokens[:, -1] = 98

    def loss(module: nn.Module) -> Tensor:
        return module(input_ids=tokens, pixel_values=pictures.to(dtype_of(module)), return_loss=True).loss

    return Program(transformers.CLIPModel(config).eval(), loss, SGD_FUSED)
