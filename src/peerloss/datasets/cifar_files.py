"""Read the published files of CIFAR-10 and CIFAR-100 and of their human labels from a local folder.

The files are pickles, which ``_integer_pickles`` reads without running code from them.
"""

from __future__ import annotations

import os
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from peerloss.datasets._integer_pickles import LARGEST_PICKLE, ArrayRecord, as_text, read_integers
from peerloss.datasets._open_limited import read_arrays
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from peerloss._validation import IntArray

    Rows: TypeAlias = tuple[NDArray[np.uint8], IntArray]


@dataclass(frozen=True)
class CifarImages:
    """CIFAR-10 or CIFAR-100 with training labels, clean or human."""

    train_images: NDArray[np.uint8]
    """Shape (n, 32, 32, 3)."""
    train_labels: IntArray
    """Shape (n,), clean or human."""
    test_images: NDArray[np.uint8]
    test_labels: IntArray
    """Always clean."""
    target_names: tuple[str, ...]
    """Names of the classes, in the order of the labels."""


@dataclass(frozen=True)
class CifarFiles:
    """The names in the published files of one data set, with which they are found, read and checked."""

    name: str
    """The name of the data set. That of its human labels has an N at the end."""
    classes: tuple[str, ...]
    folder: str
    """The standard folder."""
    training_files: tuple[str, ...]
    test_file: str
    label_key: str
    """Key of the labels in a file."""
    human_labels: Mapping[str, str]
    """Our name for each set of human labels → its name in the published file."""

    def load(self, data_dir: str | Path | None, kind: str | None = None) -> CifarImages:
        """Return all images, with the human labels ``kind`` for training unless it is ``None``."""
        images, labels = self.read_training(data_dir)
        if kind is not None:
            labels = self.read_human_labels(kind, labels, data_dir)
        return CifarImages(images, labels, *self.read_test(data_dir), self.classes)

    def read_training(self, data_dir: str | Path | None) -> Rows:
        """Return the training images and their clean labels; the test file is not opened."""
        folder = self.find_images(data_dir)
        images, labels = zip(*(self._read_batch(folder / name) for name in self.training_files), strict=True)
        return np.concatenate(images), np.concatenate(labels)

    def read_test(self, data_dir: str | Path | None) -> Rows:
        """Return the test images and their labels."""
        return self._read_batch(self.find_images(data_dir) / self.test_file)

    def read_human_labels(self, kind: str, clean: IntArray, data_dir: str | Path | None) -> IntArray:
        """Return human labels for training images whose clean labels are ``clean``."""
        column = self.human_labels[kind]
        needed = ("clean_label", column)
        tables = self._read_human(data_dir, needed)
        missing = [name for name in needed if name not in tables]
        if missing:
            raise InvalidInputError(
                f"the labels of {self.name}N must hold {missing[0]!r}; found {sorted(tables)}. "
                f"{self._label_advice}"
            )
        labels, k = tables[column], len(self.classes)
        are_numbers = {name: tables[name].dtype.kind in "iuf" for name in needed}
        if not (are_numbers["clean_label"] and np.array_equal(tables["clean_label"], clean)):
            files = " to ".join(dict.fromkeys((self.training_files[0], self.training_files[-1])))
            raise InvalidInputError(
                f"the labels of {self.name}N do not match these images: the clean labels differ. Use the "
                f"images of {files} in their original order."
            )
        is_shaped = are_numbers[column] and labels.shape == clean.shape
        if not (is_shaped and np.isin(labels, np.arange(k)).all()):
            found = f"dtype {labels.dtype}"
            if are_numbers[column] and labels.size:
                found = f"values {labels.min()} to {labels.max()}"
            raise InvalidInputError(
                f"{column!r} must hold {len(clean)} labels in 0..{k - 1}, whole numbers; got shape "
                f"{labels.shape} with {found}. {self._label_advice}"
            )
        return np.asarray(labels, dtype=np.int64)

    def find_images(self, data_dir: str | Path | None) -> Path:
        """Return the folder that contains the images."""
        places = ("", self.folder, f"{self._short_name}/{self.folder}")
        return self._find(data_dir, places, (self.test_file,), self._advice)

    def find_human_labels(self, data_dir: str | Path | None) -> Path:
        """Return the folder that contains the human labels."""
        places = ("", self._short_name, f"{self.name.lower()}n", self.folder)
        return self._find(data_dir, places, self._human_files, self._label_advice)

    @property
    def _short_name(self) -> str:
        return self.name.lower().replace("-", "")

    @property
    def _human_files(self) -> tuple[str, str]:
        return f"{self._short_name}n_labels.npz", f"{self.name}_human.pt"

    @property
    def _advice(self) -> str:
        return (
            f"Download the Python version of {self.name} from https://www.cs.toronto.edu/~kriz/cifar.html, "
            "unpack it, and pass the folder as `data_dir` or set PEERLOSS_DATA to it."
        )

    @property
    def _label_advice(self) -> str:
        return (
            f"Download {self.name}_human.pt from https://github.com/UCSC-REAL/cifar-10-100n and put it into "
            "that folder."
        )

    def _find(
        self, data_dir: str | Path | None, places: tuple[str, ...], names: tuple[str, ...], advice: str
    ) -> Path:
        """Return the first of the subfolders ``places`` that contains one of the files."""
        given = os.environ.get("PEERLOSS_DATA") if data_dir is None else data_dir
        if not given:
            raise InvalidInputError(f"`data_dir` is not given and PEERLOSS_DATA is not set. {self._advice}")
        for place in places:
            folder = Path(given) / place
            if any((folder / name).is_file() for name in names):
                return folder
        raise InvalidInputError(f"`data_dir` must contain {' or '.join(names)}; {given} does not. {advice}")

    def _read_batch(self, path: Path) -> Rows:
        content = self._read_pickle(path)
        batch = {as_text(key): value for key, value in content.items()} if isinstance(content, dict) else {}
        data, labels = batch.get("data"), batch.get(self.label_key)
        pixels = data.array if isinstance(data, ArrayRecord) else None
        k = len(self.classes)
        if (
            pixels is None
            or pixels.dtype != np.uint8
            or pixels.shape[1:] != (3072,)
            or not isinstance(labels, list)
            or len(labels) != len(pixels)
            or not all(isinstance(label, int) and 0 <= label < k for label in labels)
        ):
            raise InvalidInputError(
                f"{path} must hold 'data', bytes of shape (n, 3072), and {self.label_key!r}, n integers in "
                f"0..{k - 1}. {self._advice}"
            )
        images = pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        return np.ascontiguousarray(images), np.asarray(labels, dtype=np.int64)

    def _read_human(self, data_dir: str | Path | None, columns: tuple[str, ...]) -> dict[str, NDArray[Any]]:
        folder = self.find_human_labels(data_dir)
        path = next(folder / name for name in self._human_files if (folder / name).is_file())
        try:
            if path.suffix == ".npz":
                return read_arrays(path, columns)
            content = self._read_archive(path)
        except InvalidInputError:
            raise
        except Exception as error:  # a damaged archive can fail in any way, by its kind of compression
            raise InvalidInputError(
                f"{path} cannot be read as labels: {error}. {self._label_advice}"
            ) from error
        pairs = content.items() if isinstance(content, dict) else ()
        arrays = {as_text(key): value.array for key, value in pairs if isinstance(value, ArrayRecord)}
        return {name: array for name, array in arrays.items() if array is not None}

    def _read_archive(self, path: Path) -> Any:
        """Return the content of a file of ``torch.save``, a pickle in an archive."""
        with zipfile.ZipFile(path) as archive:
            name = next(n for n in archive.namelist() if n.endswith("/data.pkl"))
            if archive.getinfo(name).file_size > LARGEST_PICKLE:
                raise InvalidInputError(
                    f"{path} is far larger than the labels of {self.name}N. {self._label_advice}"
                )
            return read_integers(archive.read(name), path)

    def _read_pickle(self, path: Path) -> Any:
        try:
            if path.stat().st_size > LARGEST_PICKLE:
                raise InvalidInputError(f"{path} is far larger than a file of {self.name}. {self._advice}")
            return read_integers(path.read_bytes(), path)
        except OSError as error:
            raise InvalidInputError(f"{path} cannot be read: {error}. {self._advice}") from error
