"""Read CIFAR-100 from a local folder, whose files are not trusted. The reader is that of CIFAR-10."""

import os
import pickle
import zipfile

import numpy as np
import pytest

from peerloss import datasets
from peerloss.datasets import cifar_files, load_cifar10, load_cifar100, load_cifar100n
from peerloss.datasets.cifar100 import CIFAR100, CIFAR100_CLASSES, CIFAR100_SUPERCLASSES
from peerloss.exceptions import InvalidInputError

ROWS = {"train": 7, "test": 4}


def batch(name):
    rng = np.random.default_rng(len(name))
    n = ROWS[name]
    fine = rng.integers(100, size=n).tolist()
    return {
        b"filenames": [b"a.png"] * n,
        b"batch_label": b"training batch 1 of 1",
        b"fine_labels": fine,
        b"coarse_labels": [label // 5 for label in fine],
        b"data": rng.integers(256, size=(n, 3072), dtype=np.uint8),
    }


def write(folder, name, content):
    (folder / "cifar-100-python" / name).write_bytes(pickle.dumps(content, protocol=2))


@pytest.fixture
def folder(tmp_path):
    """Make a folder like the published one, with a few images."""
    (tmp_path / "cifar-100-python").mkdir()
    for name in ROWS:
        write(tmp_path, name, batch(name))
    return tmp_path


def clean_labels():
    return np.array(batch("train")[b"fine_labels"])


def write_torch_file(path, tables):
    """Write a file as ``torch.save`` does for a dict of NumPy arrays."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(tables, protocol=2))


def human_tables():
    coarse = clean_labels() // 5
    return {
        "clean_label": clean_labels(),
        "noisy_label": (clean_labels() + 1) % 100,
        "noisy_coarse_label": coarse,
        "clean_coarse_label": coarse,
    }


def test_the_classes_are_those_of_the_superclasses():
    """A hundred names in alphabetical order, five for each of the twenty superclasses."""
    assert len(set(CIFAR100_CLASSES)) == 100
    assert (CIFAR100_CLASSES[0], CIFAR100_CLASSES[42], CIFAR100_CLASSES[99]) == ("apple", "leopard", "worm")
    assert {len(names) for names in CIFAR100_SUPERCLASSES.values()} == {5}
    assert len(CIFAR100_SUPERCLASSES) == 20


def test_images_and_fine_labels_are_read(folder):
    """Pixels have the axes (row, column, colour); coarse labels are ignored."""
    data = load_cifar100(folder)
    assert data.train_images.shape == (7, 32, 32, 3)
    first = batch("train")[b"data"][0].reshape(3, 32, 32)
    np.testing.assert_array_equal(data.train_images[0].transpose(2, 0, 1), first)
    np.testing.assert_array_equal(data.train_labels, clean_labels())
    np.testing.assert_array_equal(data.test_labels, batch("test")[b"fine_labels"])
    assert data.target_names == CIFAR100_CLASSES


def test_the_folder_may_be_given_in_three_ways(folder, tmp_path, monkeypatch):
    """The folder itself, its parent, or PEERLOSS_DATA; also inside a folder ``cifar100``."""
    expected = load_cifar100(folder).train_images
    monkeypatch.setenv("PEERLOSS_DATA", str(folder))
    for data in (load_cifar100(folder / "cifar-100-python"), load_cifar100()):
        np.testing.assert_array_equal(data.train_images, expected)
    (tmp_path / "all" / "cifar100").mkdir(parents=True)
    (folder / "cifar-100-python").rename(tmp_path / "all" / "cifar100" / "cifar-100-python")
    np.testing.assert_array_equal(load_cifar100(tmp_path / "all").train_images, expected)


@pytest.mark.parametrize("kind", ["npz", "pt"])
def test_human_labels_replace_the_training_labels(folder, kind):
    """Training labels are human labels, test labels stay clean; both file formats are read."""
    if kind == "npz":
        np.savez(folder / "cifar100n_labels.npz", **human_tables())
    else:
        write_torch_file(folder / "CIFAR-100_human.pt", human_tables())
    data = load_cifar100n(folder)
    np.testing.assert_array_equal(data.train_labels, (clean_labels() + 1) % 100)
    np.testing.assert_array_equal(data.test_labels, batch("test")[b"fine_labels"])


class Malicious:
    """An object that calls a function when it is unpickled."""

    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


def test_hostile_files_are_refused(folder, tmp_path):
    """The functions are not called, neither of the images nor of the labels; the message names them."""
    target = tmp_path / "broken_in"
    write_torch_file(folder / "CIFAR-100_human.pt", {"clean_label": Malicious(os.mkdir, str(target))})
    with pytest.raises(InvalidInputError, match=r"human.pt is refused: it tries to build posix\.mkdir"):
        load_cifar100n(folder)
    write(folder, "train", {**batch("train"), b"extra": Malicious(os.mkdir, str(target))})
    with pytest.raises(InvalidInputError, match=r"train is refused: it tries to build posix\.mkdir"):
        load_cifar100(folder)
    assert not target.exists()


@pytest.mark.parametrize(
    "change",
    [
        {b"fine_labels": [100] * 7},
        {b"fine_labels": [-1] * 7},
        {b"fine_labels": [1.0] * 7},
        {b"fine_labels": [1] * 6},
        {b"fine_labels": None},
        {b"data": np.zeros((7, 3071), dtype=np.uint8)},
        {b"data": np.zeros((7, 3072), dtype=np.int64)},
    ],
    ids=["too large", "negative", "not integers", "too few", "no labels", "small images", "not bytes"],
)
def test_a_file_with_other_content_is_refused(folder, change):
    """The message has the expected content and the address of the download."""
    write(folder, "train", {**batch("train"), **change})
    with pytest.raises(
        InvalidInputError,
        match=r"train must hold 'data', bytes of shape .* 'fine_labels', n integers in 0..99. .*CIFAR-100",
    ):
        load_cifar100(folder)


def test_files_of_cifar10_are_not_mistaken_for_it(folder):
    """Labels of CIFAR-10 have another key, and its folder has other files."""
    write(folder, "train", {b"data": batch("train")[b"data"], b"labels": [1] * 7})
    with pytest.raises(InvalidInputError, match="'fine_labels'"):
        load_cifar100(folder)
    with pytest.raises(InvalidInputError, match=r"`data_dir` must contain test_batch; .* of CIFAR-10 from"):
        load_cifar10(folder)


def test_truncated_and_missing_files_are_named(folder, tmp_path, monkeypatch):
    """With the reason, or with what to download and where to put it."""
    path = folder / "cifar-100-python" / "train"
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(InvalidInputError, match="train is refused"):
        load_cifar100(folder)
    path.unlink()
    with pytest.raises(InvalidInputError, match="train cannot be read"):
        load_cifar100(folder)
    with pytest.raises(InvalidInputError, match=r"must contain test; .* Download the Python version of CIF"):
        load_cifar100(tmp_path / "nothing")
    monkeypatch.delenv("PEERLOSS_DATA", raising=False)
    with pytest.raises(InvalidInputError, match=r"PEERLOSS_DATA is not set\. Download .* CIFAR-100 from"):
        load_cifar100()


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        (None, r"must contain cifar100n_labels.npz or CIFAR-100_human.pt; .* Download CIFAR-100_human.pt"),
        ({"noisy_label": "gone"}, r"the labels of CIFAR-100N must hold 'noisy_label'; found \['clean_coarse"),
        ({"clean_label": clean_labels() + 1}, "CIFAR-100N do not match .* images of train in their original"),
        ({"noisy_label": clean_labels() + 100}, r"must hold 7 labels in 0..99, whole .* to 1\d\d\. Download"),
        ({"noisy_label": clean_labels()[:3]}, r"'noisy_label' must hold 7 labels .*; got shape \(3,\) with"),
        ("no archive", "human.pt cannot be read as labels: .* Download CIFAR-100_human.pt"),
    ],
    ids=["missing", "no column", "other images", "too large", "too few", "damaged"],
)
def test_human_labels_are_checked(folder, tables, message):
    """Missing, damaged or other files; the message says what to do."""
    path = folder / "CIFAR-100_human.pt"
    if isinstance(tables, str):
        path.write_text(tables)
    elif tables is not None:
        write_torch_file(path, human_tables() | tables)
    with pytest.raises(InvalidInputError, match=message):
        load_cifar100n(folder)


@pytest.mark.parametrize(
    "odd",
    [
        np.zeros(7, dtype=[("label", int)]),
        np.zeros(7, dtype="V8"),
        np.zeros(7, dtype="M8[s]"),
        np.zeros(7, dtype="m8[s]"),
        np.array([b"1"] * 7),
        np.array(["1"] * 7),
    ],
    ids=["records", "void", "times", "durations", "bytes", "text"],
)
def test_labels_that_are_not_numbers_are_refused(folder, odd):
    """NumPy cannot compare some of them with numbers, and converts others."""
    for name, message in (("noisy_label", r"got shape \(7,\) with dtype"), ("clean_label", "do not match")):
        tables = {"clean_label": clean_labels(), "noisy_label": clean_labels()} | {name: odd}
        np.savez(folder / "cifar100n_labels.npz", **tables)
        with pytest.raises(InvalidInputError, match=message):
            load_cifar100n(folder)


@pytest.mark.parametrize("kind", ["ZIP_STORED", "ZIP_DEFLATED", "ZIP_BZIP2", "ZIP_LZMA"])
def test_damaged_archives_are_named(folder, kind):
    """Whatever the compression, of which each has errors of its own."""
    pytest.importorskip({"ZIP_BZIP2": "bz2", "ZIP_LZMA": "lzma"}.get(kind, "zlib"))
    path = folder / "CIFAR-100_human.pt"
    with zipfile.ZipFile(path, "w", getattr(zipfile, kind)) as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(human_tables(), protocol=2))
    content = bytearray(path.read_bytes())
    content[80:120] = bytes(40)
    path.write_bytes(content)
    with pytest.raises(InvalidInputError, match=r"human.pt cannot be read as labels: .* Download"):
        load_cifar100n(folder)


def test_files_that_are_far_too_large_are_refused(folder, monkeypatch):
    """Images and labels, before they are read; the message says what to download."""
    write_torch_file(folder / "CIFAR-100_human.pt", human_tables())
    size = (folder / "cifar-100-python" / "train").stat().st_size
    monkeypatch.setattr(cifar_files, "LARGEST_PICKLE", size - 1)
    with pytest.raises(InvalidInputError, match=r"train is far larger than a file of CIFAR-100\. Download"):
        load_cifar100(folder)
    monkeypatch.setattr(cifar_files, "LARGEST_PICKLE", 10)
    with pytest.raises(InvalidInputError, match=r"human.pt is far larger than the labels of CIFAR-100N\. D"):
        CIFAR100.read_human_labels("human", clean_labels(), folder)


def test_the_module_is_an_attribute_of_its_package():
    """As ``cifar10`` is: without an import of the module, and in ``dir``."""
    assert {"cifar10", "cifar100"} <= set(dir(datasets))
    assert datasets.__getattr__("cifar100").CIFAR100 is CIFAR100
