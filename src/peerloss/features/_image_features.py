"""Features of images: from a pretrained model, or statistics that are computed here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from peerloss._device import resolve_device
from peerloss._progress import reporter, shows_progress
from peerloss._validation import check_count
from peerloss.datasets import read_image
from peerloss.exceptions import InvalidInputError
from peerloss.features._image_models import load_image_model
from peerloss.features._image_statistics import SIDE, image_statistics
from peerloss.features._principal_components import N_COMPONENTS, principal_components
from peerloss.features._resize_image import resize

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from peerloss._validation import FloatArray


@shows_progress("features of images")
def image_features(
    images: Sequence[Any],
    *,
    model: str | Path | None = None,
    n_components: int | None = N_COMPONENTS,
    batch_size: int = 32,
    device: str | torch.device | None = "auto",
    random_state: int | None = 0,
    progress: Callable[[int, int], object] | None = None,
    verbose: bool = False,  # noqa: ARG001 - read by the decorator
) -> FloatArray:
    """Return features of images, one row per image.

    Without a model, the features are statistics of texture, outline and colour of the images scaled to
    32 × 32 pixels. They are weak: they recognise digits and patterns, but hardly any objects on photos.

    Parameters
    ----------
    images
        Paths of images, or arrays of shape (height, width, 3) of bytes.
    model
        A folder with ``config.json`` and safetensors files of a Hugging Face or timm model; the name of a
        model on Hugging Face; or ``"timm:NAME"`` or ``"torchvision:NAME"``. Names are downloaded, folders are
        read without a network. Weights in other formats, which may contain code, are refused.
    n_components
        Reduce wider features to this number of principal components; ``None`` keeps all.
    batch_size
        Images per pass through the model.
    device
        Device of the model; ``"auto"`` uses a GPU if there is one.
    random_state
        Seed of the statistics.
    progress
        Called with the number of images done and their total.
    verbose
        Whether to show the progress on stderr: phase, percentage, elapsed time, time left.

    Returns
    -------
    NDArray
        Shape (n, d).

    Raises
    ------
    InvalidInputError
        If an image cannot be read or the model cannot be loaded.

    Examples
    --------
    >>> pixels = np.random.default_rng(0).integers(0, 255, (80, 20, 30, 3), dtype=np.uint8)
    >>> image_features(list(pixels)).shape
    (80, 64)
    """
    if not len(images):
        raise InvalidInputError("`images` is empty; pass at least one image.")
    check_count(batch_size, "batch_size")
    report = reporter(len(images), progress)
    if model is not None:
        found = _from_model(images, model, batch_size, device, report)
        return principal_components(found, n_components, random_state=random_state)
    small = np.empty((len(images), SIDE, SIDE, 3), dtype=np.uint8)
    for place, image in enumerate(images):
        small[place] = resize(_pixels(image), (SIDE, SIDE))
        report(place + 1)
    found = image_statistics(small, random_state)  # weighted, so not standardised again
    return principal_components(found, n_components, standardise=False, random_state=random_state)


def _from_model(
    images: Sequence[Any],
    model: str | Path,
    batch_size: int,
    device: str | torch.device | None,
    report: Callable[[int], None],
) -> FloatArray:
    place = resolve_device(device)
    backbone = load_image_model(model, place)
    found = []
    for start in range(0, len(images), batch_size):
        batch = [backbone.prepare(_pixels(image)) for image in images[start : start + batch_size]]
        features = backbone(torch.stack(batch).to(place)).cpu().numpy()
        if features.ndim != 2 or len(features) != len(batch) or not np.isfinite(features).all():
            raise InvalidInputError(
                f"`model` {str(model)!r} must return finite features, one row per image; got shape "
                f"{features.shape}. Use another model."
            )
        found.append(features)
        report(start + len(batch))
    return np.concatenate(found)


def _pixels(image: Any) -> NDArray[np.uint8]:
    if isinstance(image, str | Path):
        return read_image(image)
    pixels: NDArray[np.uint8] = np.asarray(image)
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3 or 0 in pixels.shape:
        raise InvalidInputError(
            "`images` must be paths, or arrays of bytes of shape (height, width, 3); got dtype "
            f"{pixels.dtype} and shape {pixels.shape}."
        )
    return pixels
