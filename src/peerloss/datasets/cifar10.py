"""CIFAR-10 and the human labels of CIFAR-10N, read from a local folder.

The published files are pickles, which ``_integer_pickles`` reads without running code from them.
"""

from __future__ import annotations

import os
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from peerloss._validation import check_choice
from peerloss.datasets._integer_pickles import LARGEST_PICKLE, ArrayRecord, as_text, read_integers
from peerloss.datasets._open_limited import read_arrays
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from peerloss._validation import IntArray

    Rows: TypeAlias = tuple[NDArray[np.uint8], IntArray]

CIFAR10_CLASSES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
#: Our name for each set of human labels → its name in the published files.
HUMAN_LABELS = {
    "aggregate": "aggre_label",
    "random1": "random_label1",
    "random2": "random_label2",
    "random3": "random_label3",
    "worst": "worse_label",
}
_HUMAN_FILES = ("cifar10n_labels.npz", "CIFAR-10_human.pt")
_TRAIN_FILES = tuple(f"data_batch_{i}" for i in range(1, 6))
#: Errors of reading a damaged archive.
_DAMAGED = (OSError, EOFError, RuntimeError, ValueError, StopIteration, zipfile.BadZipFile, zlib.error)
_ADVICE = (
    "Download the Python version of CIFAR-10 from https://www.cs.toronto.edu/~kriz/cifar.html, unpack it, "
    "and pass the folder as `data_dir` or set PEERLOSS_DATA to it."
)
_LABEL_ADVICE = (
    "Download CIFAR-10_human.pt from https://github.com/UCSC-REAL/cifar-10-100n and put it into that folder."
)


@dataclass(frozen=True)
class CifarImages:
    """CIFAR-10 with training labels, clean or human."""

    train_images: NDArray[np.uint8]
    """Shape (n, 32, 32, 3)."""
    train_labels: IntArray
    """Shape (n,), clean or human."""
    test_images: NDArray[np.uint8]
    test_labels: IntArray
    """Always clean."""
    target_names: tuple[str, ...] = CIFAR10_CLASSES
    """Names of the classes 0 to 9."""


def load_cifar10(data_dir: str | Path | None = None) -> CifarImages:
    """Read CIFAR-10 from its standard folder ``cifar-10-batches-py``.

    Parameters
    ----------
    data_dir
        That folder or one that contains it; ``None`` uses the environment variable ``PEERLOSS_DATA``.
    """
    return CifarImages(*read_training(data_dir), *read_test(data_dir))


def load_cifar10n(kind: str = "worst", data_dir: str | Path | None = None) -> CifarImages:
    """Read CIFAR-10 with human labels (CIFAR-10N): training labels are noisy, test labels clean.

    Parameters
    ----------
    kind
        ``"worst"`` (a wrong label, if one of the three is wrong), ``"aggregate"`` (the majority of three),
        ``"random1"``, ``"random2"`` or ``"random3"`` (one label per image).
    data_dir
        As in :func:`load_cifar10`; it also contains ``CIFAR-10_human.pt`` or ``cifar10n_labels.npz``.

    References
    ----------
    Wei, Zhu, Cheng, Liu, Niu and Liu, *Learning with Noisy Labels Revisited*, ICLR 2022.
    """
    check_choice(kind, "kind", tuple(HUMAN_LABELS))
    images, clean = read_training(data_dir)
    return CifarImages(images, read_human_labels(kind, clean, data_dir), *read_test(data_dir))


def read_training(data_dir: str | Path | None) -> Rows:
    """Return the training images and their clean labels; the test file is not opened."""
    folder = find_cifar10(data_dir)
    parts = [_read_batch(folder / name) for name in _TRAIN_FILES]
    return np.concatenate([images for images, _ in parts]), np.concatenate([labels for _, labels in parts])


def read_test(data_dir: str | Path | None) -> Rows:
    """Return the test images and their labels."""
    return _read_batch(find_cifar10(data_dir) / "test_batch")


def read_human_labels(kind: str, clean: IntArray, data_dir: str | Path | None) -> IntArray:
    """Return the labels of CIFAR-10N for training images whose clean labels are ``clean``."""
    column = HUMAN_LABELS[kind]
    needed = ("clean_label", column)
    tables = _read_human(data_dir, needed)
    missing = [name for name in needed if name not in tables]
    if missing:
        raise InvalidInputError(
            f"the labels of CIFAR-10N must hold {missing[0]!r}; found {sorted(tables)}. {_LABEL_ADVICE}"
        )
    if not np.array_equal(tables["clean_label"], clean):
        raise InvalidInputError(
            "the labels of CIFAR-10N do not match these images: the clean labels differ. Use the files "
            "data_batch_1 to data_batch_5 in their original order."
        )
    labels = np.asarray(tables[column], dtype=np.int64)
    if labels.shape != clean.shape or labels.min() < 0 or labels.max() > 9:
        raise InvalidInputError(
            f"{column!r} must hold {len(clean)} labels in 0..9; got shape {labels.shape}."
        )
    return labels


def find_cifar10(data_dir: str | Path | None) -> Path:
    """Return the folder that contains the images."""
    return _find(data_dir, ("", "cifar-10-batches-py", "cifar10/cifar-10-batches-py"), "test_batch")


def find_cifar10n(data_dir: str | Path | None) -> Path:
    """Return the folder that contains the human labels."""
    return _find(data_dir, ("", "cifar10", "cifar-10n", "cifar-10-batches-py"), *_HUMAN_FILES)


def _find(data_dir: str | Path | None, subfolders: tuple[str, ...], *names: str) -> Path:
    """Return the first of the subfolders that contains one of the files."""
    given = os.environ.get("PEERLOSS_DATA") if data_dir is None else data_dir
    if not given:
        raise InvalidInputError(f"`data_dir` is not given and PEERLOSS_DATA is not set. {_ADVICE}")
    for subfolder in subfolders:
        folder = Path(given) / subfolder
        if any((folder / name).is_file() for name in names):
            return folder
    advice = _ADVICE if "test_batch" in names else _LABEL_ADVICE
    raise InvalidInputError(f"`data_dir` must contain {' or '.join(names)}; {given} does not. {advice}")


def _read_batch(path: Path) -> Rows:
    content = _read_pickle(path)
    batch = {as_text(key): value for key, value in content.items()} if isinstance(content, dict) else {}
    data, labels = batch.get("data"), batch.get("labels")
    pixels = data.array if isinstance(data, ArrayRecord) else None
    if (
        pixels is None
        or pixels.dtype != np.uint8
        or pixels.shape[1:] != (3072,)
        or not isinstance(labels, list)
        or len(labels) != len(pixels)
        or not all(isinstance(label, int) and 0 <= label <= 9 for label in labels)
    ):
        raise InvalidInputError(
            f"{path} must hold 'data', bytes of shape (n, 3072), and 'labels', n integers in 0..9. {_ADVICE}"
        )
    images = pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images), np.asarray(labels, dtype=np.int64)


def _read_human(data_dir: str | Path | None, columns: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    folder = find_cifar10n(data_dir)
    path = next(folder / name for name in _HUMAN_FILES if (folder / name).is_file())
    try:
        if path.suffix == ".npz":
            return read_arrays(path, columns)
        with zipfile.ZipFile(path) as archive:
            name = next(n for n in archive.namelist() if n.endswith("/data.pkl"))
            if archive.getinfo(name).file_size > LARGEST_PICKLE:
                raise InvalidInputError(f"{path} is far larger than the labels of CIFAR-10N. {_LABEL_ADVICE}")
            content = read_integers(archive.read(name), path)
    except _DAMAGED as error:
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError(f"{path} cannot be read as labels: {error}. {_LABEL_ADVICE}") from error
    pairs = content.items() if isinstance(content, dict) else ()
    arrays = {as_text(key): value.array for key, value in pairs if isinstance(value, ArrayRecord)}
    return {name: array for name, array in arrays.items() if array is not None}


def _read_pickle(path: Path) -> Any:
    try:
        if path.stat().st_size > LARGEST_PICKLE:
            raise InvalidInputError(f"{path} is far larger than a batch of CIFAR-10. {_ADVICE}")
        return read_integers(path.read_bytes(), path)
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be read: {error}. {_ADVICE}") from error
