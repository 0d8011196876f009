"""Features of texts from a pretrained model: the mean of its token vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from peerloss._device import resolve_device
from peerloss._progress import reporter, shows_progress
from peerloss._validation import check_count
from peerloss.exceptions import InvalidInputError
from peerloss.features._principal_components import N_COMPONENTS, principal_components
from peerloss.features._weights_folder import (
    as_features,
    find_weights,
    first_line,
    load_tokenizer,
    load_transformer,
    read_settings,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from peerloss._validation import FloatArray

#: Longer texts are truncated to this number of tokens, or to what the model allows.
MAX_TOKENS = 512


@shows_progress("features of texts")
def text_features(
    texts: Sequence[str | None],
    *,
    model: str | Path,
    n_components: int | None = N_COMPONENTS,
    batch_size: int = 32,
    device: str | torch.device | None = "auto",
    progress: Callable[[int, int], object] | None = None,
    verbose: bool = False,  # noqa: ARG001 - read by the decorator
) -> FloatArray:
    """Return features of texts, one row per text: the mean of the token vectors of a pretrained model.

    Parameters
    ----------
    texts
        The texts; missing ones count as empty.
    model
        A folder with a Hugging Face or sentence-transformers model and its tokenizer, or the name of such a
        model on Hugging Face. Names are downloaded, folders are read without a network. Weights in other
        formats than safetensors, which may contain code, are refused. If a sentence-transformers model uses
        the vector of its first token, so does this function.
    n_components
        Reduce wider features to this number of principal components; ``None`` keeps all.
    batch_size
        Texts per pass through the model.
    device
        Device of the model; ``"auto"`` uses a GPU if there is one.
    progress
        Called with the number of texts done and their total.
    verbose
        Whether to show the progress on stderr: phase, percentage, elapsed time, time left.

    Returns
    -------
    NDArray
        Shape (n, d).

    Raises
    ------
    InvalidInputError
        If there are no texts, all are empty, or the model cannot be loaded.
    """
    clean = ["" if not isinstance(text, str) else text for text in texts]
    if not any(text.strip() for text in clean):
        raise InvalidInputError("`texts` must hold at least one text that is not empty.")
    check_count(batch_size, "batch_size")
    place = resolve_device(device)
    encoder = _TextEncoder(model, place)
    order = sorted(range(len(clean)), key=lambda i: len(clean[i]))  # equal lengths need less padding
    found: dict[int, FloatArray] = {}
    report = reporter(len(order), progress)
    for start in range(0, len(order), batch_size):
        rows = order[start : start + batch_size]
        vectors = encoder([clean[i] for i in rows]).cpu().numpy()
        if not np.isfinite(vectors).all():
            raise InvalidInputError(
                f"`model` {str(model)!r} must return finite features; it returns NaN or infinite numbers. "
                "Use another model."
            )
        found |= dict(zip(rows, vectors, strict=True))
        report(start + len(rows))
    return principal_components(np.stack([found[i] for i in range(len(clean))]), n_components)


class _TextEncoder:
    """A tokenizer, a model and the way in which its token vectors are combined."""

    def __init__(self, model: str | Path, device: torch.device) -> None:
        folder = find_weights(model)
        self.device = device
        self.first_token = False
        if (folder / "modules.json").is_file():  # written by sentence-transformers
            pooling = read_settings(folder / "1_Pooling" / "config.json", required=False)
            self.first_token = pooling.get("pooling_mode_cls_token") is True
            if not any(folder.glob("*.safetensors")):
                folder = find_weights(folder / "0_Transformer")
        self.tokenizer = load_tokenizer(folder)
        module = load_transformer(folder)
        if getattr(module.config, "is_encoder_decoder", False):
            module = module.get_encoder()
        self.module = module.to(device)
        limit = read_settings(folder / "sentence_bert_config.json", required=False).get("max_seq_length")
        # Some models need two positions more than they have tokens.
        positions = getattr(module.config, "max_position_embeddings", None) or MAX_TOKENS + 2
        limits = [MAX_TOKENS, self.tokenizer.model_max_length, positions - 2]
        self.max_tokens = max(1, int(min([*limits, limit] if isinstance(limit, int) else limits)))

    @torch.inference_mode()
    def __call__(self, texts: list[str]) -> Tensor:
        try:
            tokens: Any = self.tokenizer(
                texts, padding=True, truncation=True, max_length=self.max_tokens, return_tensors="pt"
            ).to(self.device)
            if hasattr(self.module, "get_text_features"):  # models of images and texts
                return as_features(self.module.get_text_features(**tokens)).float()
            hidden: Tensor = self.module(**tokens).last_hidden_state.float()
        except (TypeError, ValueError, RuntimeError, AttributeError, IndexError) as error:
            raise InvalidInputError(
                f"`model` cannot be applied to texts: {first_line(error)} Use a model of texts."
            ) from error
        if self.first_token:
            return hidden[:, 0]
        weight = tokens["attention_mask"].to(hidden.dtype)[:, :, None]
        mean: Tensor = (hidden * weight).sum(dim=1) / weight.sum(dim=1).clamp(min=1.0)
        return mean
