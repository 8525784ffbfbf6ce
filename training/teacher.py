"""The teacher: Kokoro-82M in PyTorch, rebuilt from an int8 ONNX export.

The graph keeps module paths in its node names, so every weight can be traced back. As ONNX on one
CPU core it runs slower than real time; the same weights in PyTorch on a GPU run over 100 times
faster. Needs `istftnet.py`, `modules.py` and `custom_stft.py` of the `kokoro` package (0.9.4,
Apache-2.0) importable as `kokoro.*`, and `onnx` to convert.

`python -m training.teacher MODEL.onnx TEACHER.pt`
"""

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

Array = npt.NDArray[Any]
VOCODER = {
    "upsample_kernel_sizes": [20, 12],
    "upsample_rates": [10, 6],
    "gen_istft_hop_size": 5,
    "gen_istft_n_fft": 20,
    "resblock_dilation_sizes": [[1, 3, 5]] * 3,
    "resblock_kernel_sizes": [3, 7, 11],
    "upsample_initial_channel": 512,
}
ALBERT_NAMES = {
    "attention.query": "q",
    "attention.key": "k",
    "attention.value": "v",
    "attention.dense": "o",
    "ffn": "f1",
    "ffn_output": "f2",
}
ALBERT_PREFIX = "encoder.albert_layer_groups.0.albert_layers.0."


class Albert(nn.Module):
    """ALBERT: twelve passes over one shared layer; inference only."""

    def __init__(self) -> None:
        """Build at the sizes of the export."""
        super().__init__()
        self.word, self.pos, self.typ = (nn.Embedding(n, 128) for n in (178, 512, 2))
        self.eln, self.map = nn.LayerNorm(128, eps=1e-12), nn.Linear(128, 768)
        self.q, self.k, self.v, self.o = (nn.Linear(768, 768) for _ in range(4))
        self.ln1, self.ln2 = nn.LayerNorm(768, eps=1e-12), nn.LayerNorm(768, eps=1e-12)
        self.f1, self.f2 = nn.Linear(768, 2048), nn.Linear(2048, 768)

    def forward(self, ids: Tensor) -> Tensor:
        """Encode ids [B, T] to [B, T, 768]."""
        batch, length = ids.shape
        x = self.map(self.eln(self.word(ids) + self.pos.weight[:length] + self.typ.weight[0]))

        def heads(t: Tensor) -> Tensor:
            return t.view(batch, length, 12, -1).transpose(1, 2)

        for _ in range(12):
            a = F.scaled_dot_product_attention(heads(self.q(x)), heads(self.k(x)), heads(self.v(x)))
            x = self.ln1(x + self.o(a.transpose(1, 2).reshape(batch, length, -1)))
            x = self.ln2(x + self.f2(F.gelu(self.f1(x), approximate="tanh")))
        return x


class Teacher(nn.Module):
    """Text characters and a style to speech and durations."""

    def __init__(self, weights: Path | None = None) -> None:
        """Build, and load what `convert` wrote."""
        super().__init__()
        from kokoro.istftnet import Decoder  # type: ignore[import-not-found]
        from kokoro.modules import (  # type: ignore[import-not-found]
            ProsodyPredictor,
            TextEncoder,
        )

        self.bert, self.bert_encoder = Albert(), nn.Linear(768, 512)
        self.predictor = ProsodyPredictor(
            style_dim=128, d_hid=512, nlayers=3, max_dur=50, dropout=0.2
        )
        self.text_encoder = TextEncoder(channels=512, kernel_size=5, depth=3, n_symbols=178)
        self.decoder = Decoder(
            dim_in=512, style_dim=128, dim_out=80, disable_complex=False, **VOCODER
        )
        for module in self.modules():
            if hasattr(module, "weight_g"):
                nn.utils.remove_weight_norm(module)
        if weights:
            state = {k: v.float() for k, v in torch.load(weights, map_location="cpu").items()}
            missing, unexpected = self.load_state_dict(state, strict=False)
            constant = re.compile(r"norm\.(weight|bias)$|window")
            assert not unexpected and all(constant.search(name) for name in missing)
        self.eval()

    @torch.inference_mode()
    def speak(self, ids: Tensor, style: Tensor, speed: float) -> tuple[Tensor, Tensor]:
        """Speak ids [1, T] (0 at both ends) in a style [1, 256]: audio [n], 25 ms units [T]."""
        length = ids.shape[1]
        lengths = torch.full((1,), length, dtype=torch.long)
        mask = torch.zeros(1, length, dtype=torch.bool, device=ids.device)
        encoded = self.bert_encoder(self.bert(ids)).transpose(1, 2)
        manner = style[:, 128:]
        d = self.predictor.text_encoder(encoded, manner, lengths, mask)
        x, _ = self.predictor.lstm(d)
        units = torch.sigmoid(self.predictor.duration_proj(x)).sum(-1) / speed
        units = torch.round(units).clamp(min=1).long()[0]
        index = torch.repeat_interleave(torch.arange(length, device=ids.device), units)
        pitch, energy = self.predictor.F0Ntrain(d.transpose(1, 2)[:, :, index], manner)
        text = self.text_encoder(ids, lengths, mask)[:, :, index]
        return self.decoder(text, pitch, energy, style[:, :128]).squeeze(), units


def _module_path(node_name: str) -> str:
    """Turn an ONNX node name into the module path in PyTorch."""
    parts = node_name.strip("/").split("/")
    parts = parts[1:] if parts[0] in ("encoder", "decoder") else parts
    if parts and re.fullmatch(r"(F0|N)\.\d|shared|F0_proj|N_proj", parts[0]):
        parts = ["predictor", *parts]
    out: list[str] = []
    for part in parts:
        if out and re.fullmatch(re.escape(out[-1]) + r"\.\d+", part):
            out[-1] = part
        else:
            out.append(part)
    return ".".join(out)


class _Graph:
    """The export's tensors by name, with int8 ones turned back into reals."""

    def __init__(self, path: Path) -> None:
        import onnx  # type: ignore[import-not-found]
        from onnx import numpy_helper

        graph = onnx.load(str(path)).graph
        self.nodes = graph.node
        self.arrays: dict[str, Array] = {
            tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer
        }
        for node in graph.node:
            if node.op_type == "Constant":
                for attribute in node.attribute:
                    if attribute.name == "value":
                        self.arrays[node.output[0]] = numpy_helper.to_array(attribute.t)

    def real(self, name: str, zero_name: str) -> Array:
        """Return a quantised tensor as float32."""
        weight = self.arrays[name].astype(np.float32)
        base = name.removesuffix("_quantized")
        none = np.zeros((), np.uint8)
        zero = self.arrays.get(zero_name, self.arrays.get(base + "_zero_point", none))
        zero, scale = zero.astype(np.float32), self.arrays[base + "_scale"].astype(np.float32)
        if scale.ndim == 1 and scale.size == weight.shape[0] and weight.ndim == 3:
            scale, zero = scale[:, None, None], zero.reshape(-1, 1, 1)
        return np.asarray((weight - zero) * scale)


def _lstm(graph: _Graph, node: Any, prefix: str) -> dict[str, Array]:
    """Return an LSTM's weights; ONNX orders gates i o f c, PyTorch i f c o."""
    out: dict[str, Array] = {}
    inputs = list(node.input)

    def gates(stacked: Array) -> Array:
        i, o, f, c = np.split(stacked, 4, 0)
        return np.concatenate([i, f, c, o], 0)

    ways = ((0, "_l0"), (1, "_l0_reverse"))
    for name, at, scale_at, zero_at in (("weight_ih", 1, 8, 9), ("weight_hh", 2, 10, 11)):
        weight, scale, zero = (
            graph.arrays[inputs[k]].astype(np.float32) for k in (at, scale_at, zero_at)
        )
        for way, suffix in ways:
            real = ((weight[way] - zero.reshape(2, -1)[way]) * scale.reshape(2, -1)[way]).T
            out[f"{prefix}.{name}{suffix}"] = gates(real)
    bias = graph.arrays[inputs[3]]
    half = bias.shape[1] // 2
    for way, suffix in ways:
        out[f"{prefix}.bias_ih{suffix}"] = gates(bias[way][:half])
        out[f"{prefix}.bias_hh{suffix}"] = gates(bias[way][half:])
    return out


def _node_weights(graph: _Graph) -> dict[str, Array]:
    """Return the weights that are named by the node that uses them."""
    out: dict[str, Array] = {}
    for node in graph.nodes:
        path = _module_path(node.name.rsplit("/", 1)[0])
        if node.op_type in ("ConvInteger", "MatMulInteger"):
            weight = graph.real(node.input[1], node.input[3])
            if "albert_layers" in path:
                kind = re.sub(r"_\d+$", "", path.split("albert_layers.0.")[1])
                out[f"bert.{ALBERT_NAMES[kind]}.weight"] = weight.T
            elif "embedding_hidden_mapping_in" in path:
                out["bert.map.weight"] = weight.T
            else:
                out[f"{path}.weight"] = weight.T if node.op_type == "MatMulInteger" else weight
        elif node.op_type in ("Conv", "ConvTranspose") and "/stft/" not in node.name:
            if "istft/stft" not in node.name:
                out[f"{path}.weight"] = graph.arrays[node.input[1]]
        elif node.op_type == "MatMul" and "l_linear" in node.name:
            out["decoder.generator.m_source.l_linear.weight"] = graph.arrays[node.input[1]].T
        elif node.op_type == "DynamicQuantizeLSTM":
            out |= _lstm(graph, node, path)
    return out


def _named_weights(graph: _Graph) -> dict[str, Array]:
    """Return the weights that keep their own names: embeddings, norms, biases."""
    out: dict[str, Array] = {}
    tables = {"word_embeddings": "word", "position_embeddings": "pos"}
    tables["token_type_embeddings"] = "typ"
    norms = {
        "embeddings.LayerNorm": "eln",
        "encoder.embedding_hidden_mapping_in": "map",
        ALBERT_PREFIX + "attention.LayerNorm": "ln1",
        ALBERT_PREFIX + "full_layer_layer_norm": "ln2",
    }
    for key, value in graph.arrays.items():
        table = re.match(r"encoder\.bert\.embeddings\.(\w+)\.weight(_quantized)?$", key)
        if table and table.group(1) in tables:
            name = tables[table.group(1)]
            out[f"bert.{name}.weight"] = graph.real(key, "") if table.group(2) else value
        if key == "encoder.text_encoder.embedding.weight_quantized":
            out["text_encoder.embedding.weight"] = graph.real(key, "")
        plain = re.match(
            r"(?:encoder|decoder)\.(.*\.(?:bias|gamma|beta|weight|alpha[12]\.\d+))$", key
        )
        if not plain:
            continue
        path = plain.group(1)
        if not path.startswith("bert."):
            out[path] = value
            continue
        for long, short in norms.items():
            if path[5:].startswith(long):
                out["bert." + short + path[5 + len(long) :]] = value
        bias = re.match(re.escape("bert." + ALBERT_PREFIX) + r"(.*)\.bias", path)
        if bias and bias.group(1) in ALBERT_NAMES:
            out[f"bert.{ALBERT_NAMES[bias.group(1)]}.bias"] = value
    return out


def convert(source: Path, target: Path) -> None:
    """Write the export's weights as a PyTorch state of float16 tensors."""
    graph = _Graph(source)
    weights = _node_weights(graph) | _named_weights(graph)
    state = {
        name: torch.from_numpy(np.array(value)).to(torch.float16) for name, value in weights.items()
    }
    torch.save(state, target)
    print(f"teacher: {len(state)} tensors, {sum(v.numel() for v in state.values()) / 1e6:.1f} M")


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
