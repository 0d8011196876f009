"""Features of images without a model, and the checks of images given as arrays."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score

from peerloss.exceptions import InvalidInputError
from peerloss.features import image_features
from tests.datasets.made_images import picture, write_images


def test_statistics_tell_patterns_apart():
    """The direction of stripes and the colour are recognised by a linear model."""
    names = ["cat", "dog", "eel"] * 20
    X = image_features([picture(name, seed) for seed, name in enumerate(names)])
    assert X.shape == (60, 60)  # no more components than images
    assert cross_val_score(LogisticRegression(), X, names, cv=3).mean() > 0.9


def test_gray_patterns_are_told_apart_without_colours():
    """Two directions of stripes with the same colours."""
    images = [np.repeat(picture(name, i)[:, :, :1], 3, axis=2) for i in range(20) for name in ("cat", "dog")]
    X = image_features(images, n_components=10)
    assert cross_val_score(LogisticRegression(), X, [0, 1] * 20, cv=3).mean() > 0.9


def test_paths_and_arrays_give_the_same_features(tmp_path):
    """The seed decides on the patches; progress is reported image by image."""
    folder = write_images(tmp_path / "images", 10)
    paths = sorted(folder.rglob("*.png"))
    arrays = [picture(name, 1000 * start + i) for start, name in enumerate(("cat", "dog")) for i in range(10)]
    done = []
    one = image_features(paths, random_state=1, progress=lambda i, n: done.append((i, n)))
    np.testing.assert_array_equal(one, image_features(arrays, random_state=1))
    assert not np.array_equal(one, image_features(arrays, random_state=2))
    assert done == [(i + 1, 20) for i in range(20)]


def test_blank_images_have_finite_features():
    """Images without any contrast do not divide by zero."""
    images = [np.full((5, 9, 3), value, dtype=np.uint8) for value in (0, 128, 255, 255)]
    assert np.isfinite(image_features(images)).all()


@pytest.mark.parametrize(
    ("images", "message"),
    [
        ([], "`images` is empty"),
        ([np.zeros((4, 4), dtype=np.uint8)], r"of shape \(height, width, 3\); got dtype uint8"),
        ([np.zeros((4, 4, 3))], "got dtype float64"),
        ([np.zeros((0, 4, 3), dtype=np.uint8)], r"shape \(0, 4, 3\)"),
        (["no-such.png"], "no-such.png does not exist"),
    ],
)
def test_other_images_are_refused(images, message):
    """Nothing, gray or floating-point arrays, empty images, missing files."""
    with pytest.raises(InvalidInputError, match=message):
        image_features(images)


def test_the_batch_size_is_checked():
    """It is a positive number."""
    with pytest.raises(InvalidInputError, match="`batch_size`"):
        image_features([np.zeros((4, 4, 3), dtype=np.uint8)], batch_size=0)
