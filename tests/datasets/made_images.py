"""Small images for tests: each class has its own colour and direction of stripes."""

import numpy as np
import pytest

pytest.importorskip("PIL", reason="needs Pillow")
from PIL import Image

COLOURS = {"cat": (200, 120, 60), "dog": (60, 120, 200), "eel": (90, 200, 90)}


def picture(name, seed, side=16):
    """Return pixels of one class: stripes of a direction and a colour of its own, with noise."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[:side, :side]
    along = {"cat": rows, "dog": columns, "eel": rows + columns}[name]
    waves = 60 * np.sin(along + rng.uniform(0, 6))[:, :, None]
    noisy = np.array(COLOURS[name]) + waves + rng.normal(0, 15, (side, side, 3))
    return np.clip(noisy, 0, 255).astype(np.uint8)


def write_images(folder, per_class=20, names=("cat", "dog")):
    """Write class sub-folders of PNG files."""
    for start, name in enumerate(names):
        (folder / name).mkdir(parents=True)
        for i in range(per_class):
            Image.fromarray(picture(name, 1000 * start + i)).save(folder / name / f"{i:03}.png")
    return folder
