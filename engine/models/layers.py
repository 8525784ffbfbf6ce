"""The decoder stack that talker, code predictor and codec share; plain torch, batch first.

Weights are packed at load into [in, out] matrices: one for q, k and v, one for gate and up.
A stack owns no cache: `run` hands each layer's rotated heads to an `Attend`, which stores keys
and values where its owner keeps them and returns the mixed heads.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from playhead.engine.models.config import StackConfig
from playhead.kernels import rms_norm, rope, rope_tables

Attend = Callable[[int, Tensor], Tensor]
"""(layer, heads [N, q + k + v heads, D] with q and k rotated) -> mixed heads [N, q heads * D]."""


@dataclass(frozen=True, slots=True)
class Layer:
    """Packed weights of one layer; matrices are [in, out]."""

    input_norm: Tensor
    qkv: Tensor
    qk_norm: Tensor | None
    """[q heads + k heads, D]: one row per head; None where the stack has no head norm."""
    out: Tensor
    post_norm: Tensor
    gate_up: Tensor
    down: Tensor


def stack_shapes(
    prefix: str, config: StackConfig, *, head_norm: bool, layer_scale: bool
) -> dict[str, tuple[int, ...]]:
    """Return the name and shape of every tensor of a stack as a checkpoint stores it."""
    c = config
    wide, narrow = c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim
    leaves: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (c.hidden,),
        "self_attn.q_proj.weight": (wide, c.hidden),
        "self_attn.k_proj.weight": (narrow, c.hidden),
        "self_attn.v_proj.weight": (narrow, c.hidden),
        "self_attn.o_proj.weight": (c.hidden, wide),
        "post_attention_layernorm.weight": (c.hidden,),
        "mlp.gate_proj.weight": (c.intermediate, c.hidden),
        "mlp.up_proj.weight": (c.intermediate, c.hidden),
        "mlp.down_proj.weight": (c.hidden, c.intermediate),
    }
    if head_norm:
        leaves["self_attn.q_norm.weight"] = leaves["self_attn.k_norm.weight"] = (c.head_dim,)
    if layer_scale:
        leaves["self_attn_layer_scale.scale"] = leaves["mlp_layer_scale.scale"] = (c.hidden,)
    shapes = {
        f"{prefix}.layers.{i}.{leaf}": shape
        for i in range(c.num_layers)
        for leaf, shape in leaves.items()
    }
    return shapes | {f"{prefix}.norm.weight": (c.hidden,)}


def _pack_layer(weights: dict[str, Tensor], prefix: str, config: StackConfig) -> Layer:
    # Weights leave the mapping as they are packed: a large model is not held twice.
    def matrix(*names: str) -> Tensor:
        return torch.cat([weights.pop(f"{prefix}.{name}.weight") for name in names]).T.contiguous()

    qkv = matrix("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    out, down = matrix("self_attn.o_proj"), matrix("mlp.down_proj")
    qk_norm = None
    if f"{prefix}.self_attn.q_norm.weight" in weights:
        q_norm, k_norm = (weights[f"{prefix}.self_attn.{n}_norm.weight"] for n in "qk")
        rows = [q_norm.expand(config.num_heads, -1), k_norm.expand(config.num_kv_heads, -1)]
        qk_norm = torch.cat(rows).contiguous()
    if f"{prefix}.mlp_layer_scale.scale" in weights:
        # A branch's scale multiplies the columns of its last matrix: one multiplication less.
        out = out * weights[f"{prefix}.self_attn_layer_scale.scale"]
        down = down * weights[f"{prefix}.mlp_layer_scale.scale"]
    return Layer(
        input_norm=weights[f"{prefix}.input_layernorm.weight"],
        qkv=qkv,
        qk_norm=qk_norm,
        out=out,
        post_norm=weights[f"{prefix}.post_attention_layernorm.weight"],
        gate_up=matrix("mlp.gate_proj", "mlp.up_proj"),
        down=down,
    )


class Stack:
    """A stack of pre-norm layers with a final norm."""

    def __init__(self, config: StackConfig, weights: dict[str, Tensor], prefix: str) -> None:
        """Pack the layers found under `prefix`; their matrices are taken out of `weights`."""
        self.config = config
        self.layers = [
            _pack_layer(weights, f"{prefix}.layers.{i}", config) for i in range(config.num_layers)
        ]
        self.norm = weights[f"{prefix}.norm.weight"]

    def rope_tables(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return cos and signed sin [N, 1, D] for positions [N]."""
        c = self.config
        cos, sin = rope_tables(positions, c.head_dim, c.rope_theta, self.norm.dtype)
        return cos.unsqueeze(-2), sin.unsqueeze(-2)

    def run(self, x: Tensor, cos: Tensor, sin: Tensor, attend: Attend) -> Tensor:
        """Run rows `x` [N, hidden] with their rope rows [N, 1, D]; return [N, hidden], un-normed.

        Rows of one sequence are kept apart from others by `attend` alone.
        """
        c = self.config
        num_qk = c.num_heads + c.num_kv_heads
        heads_shape = (x.shape[0], num_qk + c.num_kv_heads, c.head_dim)
        for index, layer in enumerate(self.layers):
            heads = torch.mm(rms_norm(x, layer.input_norm, c.rms_eps), layer.qkv).view(heads_shape)
            qk = heads[:, :num_qk]
            turned = qk if layer.qk_norm is None else rms_norm(qk, layer.qk_norm, c.rms_eps)
            rope(turned, cos, sin, out=qk)
            x = torch.addmm(x, attend(index, heads), layer.out)
            hidden = torch.mm(rms_norm(x, layer.post_norm, c.rms_eps), layer.gate_up)
            gate, up = hidden.chunk(2, -1)
            x = torch.addmm(x, F.silu(gate).mul_(up), layer.down)
        return x

    def final(self, x: Tensor) -> Tensor:
        """Apply the final norm."""
        return rms_norm(x, self.norm, self.config.rms_eps)
