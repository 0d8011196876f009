"""Statistics of images: what can be computed without a pretrained model.

Three kinds are combined: responses to whitened patches of the images themselves (Coates and Ng, 2012),
histograms of gradient directions (Dalal and Triggs, 2005), and mean and spread of the colours, on a grid.
They describe texture, outline and colour, and know nothing about objects: a pretrained model is better on
photos.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from peerloss._validation import FloatArray

#: Images are scaled to this side; cells of the grid for gradients and colours; directions of gradients.
SIDE, CELLS, DIRECTIONS = 32, 4, 9
#: Patches: side, number that are whitened, number that are filters, grid of the mean responses.
PATCH, N_PATCHES, N_FILTERS, POOL = 6, 5000, 200, 2
#: Responses below this are zero; variance that is added before whitening.
THRESHOLD, WHITENING = 0.5, 0.1
#: Weight of gradients and colours, so that they count about as much as the more numerous responses.
GRID_WEIGHT = 2.0
BATCH = 64


def image_statistics(images: NDArray[np.uint8], random_state: int | None) -> FloatArray:
    """Return responses, gradients and colours of images (n, 32, 32, 3), standardised and weighted."""
    groups = [_responses(images, random_state), GRID_WEIGHT * _grid(images)]
    return np.hstack(groups)


def _standardised(X: NDArray[np.floating]) -> FloatArray:
    scale = X.std(axis=0, dtype=np.float64)
    found: FloatArray = (X - X.mean(axis=0, dtype=np.float64)) / np.where(scale > 1e-6, scale, np.inf)
    return found


def _responses(images: NDArray[np.uint8], random_state: int | None) -> FloatArray:
    """Return the mean responses to random whitened patches, positive and negative, in each quarter."""
    rng = np.random.default_rng(random_state)
    pixels = torch.from_numpy(np.ascontiguousarray(images)).permute(0, 3, 1, 2).float() / 255.0
    pixels = pixels - pixels.mean(dim=(1, 2, 3), keepdim=True)
    pixels = pixels / (pixels.std(dim=(1, 2, 3), keepdim=True) + 0.01)
    last = SIDE + 1 - PATCH
    places = rng.integers((len(images), last, last), size=(N_PATCHES, 3))
    patches = torch.stack([pixels[i, :, r : r + PATCH, c : c + PATCH].flatten() for i, r, c in places])
    patches = (patches - patches.mean(dim=0)).double()
    values, vectors = torch.linalg.eigh(patches.T @ patches / len(patches))
    whiten = vectors @ torch.diag((values.clamp(min=0) + WHITENING).rsqrt()) @ vectors.T
    filters = patches[:N_FILTERS] @ whiten
    filters = (filters / (filters.norm(dim=1, keepdim=True) + 1e-6)) @ whiten
    weights = filters.reshape(N_FILTERS, 3, PATCH, PATCH).float()
    found = []
    for batch in pixels.split(BATCH):
        response = torch.nn.functional.conv2d(batch, weights)
        both = torch.cat([(response - THRESHOLD).relu(), (-response - THRESHOLD).relu()], dim=1)
        found.append(torch.nn.functional.adaptive_avg_pool2d(both, POOL).flatten(1))
    return _standardised(torch.cat(found).numpy())


def _grid(images: NDArray[np.uint8]) -> FloatArray:
    """Return gradient directions, and mean and spread of each colour, in each cell of a grid."""
    found = []
    for start in range(0, len(images), BATCH):
        pixels = images[start : start + BATCH].astype(np.float64) / 255.0
        cells = pixels.reshape(len(pixels), CELLS, SIDE // CELLS, CELLS, SIDE // CELLS, 3)
        colours = [cells.mean(axis=(2, 4)), cells.std(axis=(2, 4))]
        parts = [_gradients(pixels.mean(axis=3)), *colours]
        found.append(np.hstack([part.reshape(len(pixels), -1) for part in parts]))
    return _standardised(np.concatenate(found))


def _gradients(gray: FloatArray) -> FloatArray:
    """Return the strength of the gradients in each direction, (n, cells · cells · directions)."""
    down, right = np.zeros_like(gray), np.zeros_like(gray)
    down[:, 1:-1] = gray[:, 2:] - gray[:, :-2]
    right[:, :, 1:-1] = gray[:, :, 2:] - gray[:, :, :-2]
    strength = np.hypot(right, down)
    angle = np.arctan2(down, right) % np.pi / np.pi * DIRECTIONS
    below, share = np.floor(angle).astype(int) % DIRECTIONS, angle - np.floor(angle)
    shape = (len(gray), CELLS, SIDE // CELLS, CELLS, SIDE // CELLS)
    directions = []
    for k in range(DIRECTIONS):  # a gradient counts for the two nearest directions
        weight = (below == k) * (1 - share) + ((below + 1) % DIRECTIONS == k) * share
        directions.append((strength * weight).reshape(shape).sum(axis=(2, 4)).reshape(len(gray), -1))
    found = np.hstack(directions)
    normalised: FloatArray = found / (np.linalg.norm(found, axis=1, keepdims=True) + 0.1)
    return normalised
