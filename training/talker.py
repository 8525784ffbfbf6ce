"""Talker and code predictor for training: whole sequences at once, names as in the reference."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from playhead.engine.units import CODEBOOKS
from training.layers import Stack
from training.sizes import (
    CODEC_BOS,
    CODEC_PAD,
    ENGLISH,
    NO_THINK,
    ROLE,
    SIZES,
    SPEAKER,
    THINK,
    THINK_BOS,
    THINK_EOS,
    TTS_BOS,
    TTS_PAD,
    Sizes,
)

PROMPT_ROWS = {False: 8, True: 9}
"""Rows before the first text row, without and with a language."""


class TalkerModel(Stack):
    """The talker's layers and tables."""

    def __init__(self, sizes: Sizes, dropout: float) -> None:
        """Build at the given sizes."""
        super().__init__(
            sizes.talker_width,
            sizes.talker_layers,
            sizes.heads,
            sizes.kv_heads,
            sizes.talker_mlp,
            dropout,
        )
        self.codec_embedding = nn.Embedding(sizes.codec_vocab, sizes.talker_width)
        self.text_embedding = nn.Embedding(sizes.text_vocab, sizes.text_width)


class PredictorModel(Stack):
    """The predictor's layers and tables."""

    def __init__(self, sizes: Sizes, dropout: float) -> None:
        """Build at the given sizes."""
        super().__init__(
            sizes.predictor_width,
            sizes.predictor_layers,
            sizes.heads,
            sizes.kv_heads,
            sizes.predictor_mlp,
            dropout,
        )
        self.codec_embedding = nn.ModuleList(
            nn.Embedding(sizes.codebook, sizes.talker_width) for _ in range(CODEBOOKS - 1)
        )


class Predictor(nn.Module):
    """Codebooks 1..15 of a frame from the talker's hidden state and codebook 0."""

    def __init__(self, sizes: Sizes, dropout: float) -> None:
        """Build at the given sizes; the predictor is as wide as the talker."""
        super().__init__()
        assert sizes.predictor_width == sizes.talker_width
        self.model = PredictorModel(sizes, dropout)
        self.lm_head = nn.ModuleList(
            nn.Linear(sizes.predictor_width, sizes.codebook, bias=False)
            for _ in range(CODEBOOKS - 1)
        )


class TextProjection(nn.Module):
    """Two biased layers from text width to talker width."""

    def __init__(self, width: int, out: int) -> None:
        """Build for a width."""
        super().__init__()
        self.linear_fc1, self.linear_fc2 = nn.Linear(width, width), nn.Linear(width, out)

    def forward(self, x: Tensor) -> Tensor:
        """Project [..., text width]."""
        return self.linear_fc2(F.silu(self.linear_fc1(x)))


class Talker(nn.Module):
    """Talker with its predictor; `state_dict` has the reference's names below `talker.`."""

    def __init__(self, sizes: Sizes = SIZES, dropout: float = 0.0) -> None:
        """Build at the given sizes."""
        super().__init__()
        self.sizes = sizes
        self.model = TalkerModel(sizes, dropout)
        self.text_projection = TextProjection(sizes.text_width, sizes.talker_width)
        self.codec_head = nn.Linear(sizes.talker_width, sizes.codec_vocab, bias=False)
        self.code_predictor = Predictor(sizes, dropout)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.02)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=0.05)

    def frame_rows(self, codes: Tensor) -> Tensor:
        """Sum the 16 code rows of frames [..., 16] to [..., width]."""
        total = self.model.codec_embedding(codes[..., 0])
        for index, table in enumerate(self.code_predictor.model.codec_embedding):
            total = total + table(codes[..., index + 1])
        return total

    def prompt(self, project_text: "TextTable", english: bool) -> Tensor:
        """Return the rows before the first text row: [PROMPT_ROWS[english], width]."""
        device = self.codec_head.weight.device
        tags = (
            [THINK, THINK_BOS, ENGLISH, THINK_EOS] if english else [NO_THINK, THINK_BOS, THINK_EOS]
        )
        codec = self.model.codec_embedding(torch.tensor([*tags, SPEAKER, CODEC_PAD], device=device))
        text = project_text(
            torch.tensor([*ROLE, *([TTS_PAD] * (len(tags) + 1)), TTS_BOS], device=device)
        )
        return torch.cat([text[:3], text[3:] + codec])

    def codec_bos(self) -> Tensor:
        """Return the codec row under the first text row."""
        return self.model.codec_embedding.weight[CODEC_BOS]

    def predictor_logits(self, hidden: Tensor, codes: Tensor) -> Tensor:
        """Return logits of codebooks 1..15 for frames: hidden [n, width], codes [n, 16]."""
        predictor = self.code_predictor
        tables = list(predictor.model.codec_embedding)[: CODEBOOKS - 2]
        rows = [hidden, self.model.codec_embedding(codes[:, 0])]
        rows += [table(codes[:, index + 1]) for index, table in enumerate(tables)]
        out = predictor.model.run(torch.stack(rows, 1), self.sizes.rope_theta)[:, 1:]
        heads = torch.stack([head.get_parameter("weight") for head in predictor.lm_head])
        return torch.einsum("nkd,ksd->nks", out, heads.to(out.dtype))


class TextTable(nn.Module):
    """Text rows in training: a pair of sounds is the sum of two embeddings, other ids their own.

    So every pair is trained, also those that never occur; export writes the sums out as the plain
    table of the reference.
    """

    def __init__(self, talker: Talker, base: int, num_sounds: int) -> None:
        """Use the talker's table for ids that are no pairs."""
        super().__init__()
        width = talker.sizes.text_width
        self.first, self.second = nn.Embedding(num_sounds, width), nn.Embedding(num_sounds, width)
        nn.init.normal_(self.first.weight, std=0.05)
        nn.init.normal_(self.second.weight, std=0.05)
        self._base, self._num_sounds = base, num_sounds
        self._talker = [talker]

    def embed(self, ids: Tensor) -> Tensor:
        """Return text embeddings before the projection."""
        pair = ids - self._base
        is_pair = (pair >= 0) & (pair < self._num_sounds**2)
        pair = pair.clamp(0, self._num_sounds**2 - 1)
        summed = self.first(pair // self._num_sounds) + self.second(pair % self._num_sounds)
        return torch.where(is_pair[..., None], summed, self._talker[0].model.text_embedding(ids))

    def forward(self, ids: Tensor) -> Tensor:
        """Return projected text rows [..., talker width]."""
        out: Tensor = self._talker[0].text_projection(self.embed(ids))
        return out

    @torch.no_grad()
    def materialise(self) -> Tensor:
        """Return the plain table [text_vocab, text_width]."""
        table = self._talker[0].model.text_embedding
        ids = torch.arange(table.num_embeddings, device=table.weight.device)
        return self.embed(ids)
