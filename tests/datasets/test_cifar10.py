"""Read CIFAR-10 from a local folder, whose files are not trusted."""

import io
import os
import pickle
import zipfile

import numpy as np
import pytest

from peerloss.datasets import _integer_pickles, _open_limited, load_cifar10, load_cifar10n
from peerloss.exceptions import InvalidInputError

ROWS = 3


def batch(seed):
    rng = np.random.default_rng(seed)
    pixels = rng.integers(256, size=(ROWS, 3072), dtype=np.uint8)
    return {b"data": pixels, b"labels": rng.integers(10, size=ROWS).tolist(), b"filenames": [b"a.png"] * ROWS}


@pytest.fixture
def folder(tmp_path):
    """Make a folder like the published one, with three images per file."""
    inner = tmp_path / "cifar-10-batches-py"
    inner.mkdir()
    for i, name in enumerate([*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]):
        (inner / name).write_bytes(pickle.dumps(batch(i), protocol=2))
    return tmp_path


def clean_labels():
    return np.concatenate([batch(i)[b"labels"] for i in range(5)])


def test_images_and_labels_are_read_in_order(folder):
    """Pixels have the axes (row, column, colour), and files keep their order."""
    data = load_cifar10(folder)
    assert data.train_images.shape == (5 * ROWS, 32, 32, 3)
    assert data.train_images.dtype == np.uint8
    second = batch(1)
    expected = second[b"data"][0].reshape(3, 32, 32)
    np.testing.assert_array_equal(data.train_images[ROWS].transpose(2, 0, 1), expected)
    np.testing.assert_array_equal(data.train_labels, clean_labels())
    np.testing.assert_array_equal(data.test_labels, batch(5)[b"labels"])


def test_the_folder_may_be_given_in_three_ways(folder, monkeypatch):
    """The folder itself, its parent, or PEERLOSS_DATA."""
    expected = load_cifar10(folder)
    monkeypatch.setenv("PEERLOSS_DATA", str(folder))
    for data in (load_cifar10(folder / "cifar-10-batches-py"), load_cifar10()):
        np.testing.assert_array_equal(data.train_images, expected.train_images)


def test_files_written_by_python_2_are_read(folder):
    """The published files have byte strings where Python 3 writes encoded text."""
    pixels = batch(5)[b"data"]
    raw = pixels.tobytes()
    body = b"".join(
        [
            b"\x80\x02}(U\x04dataq\x01cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tU\x01btR",
            b"(K\x01K\x03M\x00\x0c\x86cnumpy\ndtype\n(U\x02u1K\x00K\x01tR(K\x03U\x01|NNNJ\xff\xff\xff\xff",
            b"J\xff\xff\xff\xffK\x00tb\x89T" + len(raw).to_bytes(4, "little") + raw + b"tbU\x06labels]",
            b"(K\x01K\x02K\x03eu.",
        ]
    )
    (folder / "cifar-10-batches-py" / "test_batch").write_bytes(body)
    data = load_cifar10(folder)
    np.testing.assert_array_equal(data.test_images.transpose(0, 3, 1, 2).reshape(3, -1), pixels)
    assert data.test_labels.tolist() == [1, 2, 3]


class Malicious:
    """An object that calls a function when it is unpickled."""

    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_pickle_that_calls_a_function_is_refused(folder, tmp_path, protocol):
    """The function is not called; the message names it."""
    target = tmp_path / "broken_in"
    content = {**batch(0), b"extra": Malicious(os.mkdir, str(target))}
    (folder / "cifar-10-batches-py" / "data_batch_3").write_bytes(pickle.dumps(content, protocol=protocol))
    with pytest.raises(InvalidInputError, match=r"data_batch_3 is refused: it tries to build posix\.mkdir"):
        load_cifar10(folder)
    assert not target.exists()


@pytest.mark.parametrize(
    "content",
    [
        Malicious(eval, "1"),
        Malicious(np.load, "x"),
        {b"data": np.array([[object()]]), b"labels": [0]},
        {b"data": np.zeros((1, 3072)), b"labels": [0]},
    ],
    ids=["eval", "numpy function", "objects", "floats"],
)
def test_only_arrays_of_integers_are_built(folder, content):
    """Other functions, also of NumPy, and other arrays are refused."""
    (folder / "cifar-10-batches-py" / "data_batch_1").write_bytes(pickle.dumps(content, protocol=2))
    with pytest.raises(InvalidInputError, match="data_batch_1 is refused"):
        load_cifar10(folder)


def test_a_codec_other_than_latin_1_is_refused(folder):
    """The function that decodes bytes cannot be used for other codecs."""
    body = b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x03\x00\x00\x00hex\x86R."
    (folder / "cifar-10-batches-py" / "data_batch_1").write_bytes(body)
    with pytest.raises(InvalidInputError, match="the codec 'hex'"):
        load_cifar10(folder)


@pytest.mark.parametrize(
    "content",
    [
        [],
        {b"data": batch(0)[b"data"]},
        {b"data": batch(0)[b"data"], b"labels": [1, 2]},
        {b"data": batch(0)[b"data"], b"labels": [1, 2, 10]},
        {b"data": batch(0)[b"data"][:, :10], b"labels": [1, 2, 3]},
    ],
    ids=["a list", "no labels", "too few labels", "a label too large", "small images"],
)
def test_a_file_with_other_content_is_refused(folder, content):
    """The message describes the expected content."""
    (folder / "cifar-10-batches-py" / "data_batch_2").write_bytes(pickle.dumps(content, protocol=2))
    with pytest.raises(InvalidInputError, match=r"data_batch_2 must hold 'data', bytes of shape"):
        load_cifar10(folder)


def test_a_truncated_file_is_refused(folder):
    """Incomplete and missing files are named."""
    path = folder / "cifar-10-batches-py" / "data_batch_4"
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(InvalidInputError, match="data_batch_4 is refused"):
        load_cifar10(folder)
    path.unlink()
    with pytest.raises(InvalidInputError, match="data_batch_4 cannot be read"):
        load_cifar10(folder)


def test_a_missing_folder_has_advice(tmp_path, monkeypatch):
    """The message says where to download the data and how to pass the folder."""
    with pytest.raises(InvalidInputError, match=r"`data_dir` must contain test_batch; .* Download"):
        load_cifar10(tmp_path)
    monkeypatch.delenv("PEERLOSS_DATA", raising=False)
    with pytest.raises(
        InvalidInputError, match=r"`data_dir` is not given and PEERLOSS_DATA is not set\. Down"
    ):
        load_cifar10()


def human_tables():
    clean = clean_labels()
    return {"clean_label": clean, "worse_label": (clean + 1) % 10, "aggre_label": clean.copy()}


def write_torch_file(path, tables):
    """Write a file as ``torch.save`` does for a dict of NumPy arrays."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(tables, protocol=2))


@pytest.mark.parametrize("kind", ["npz", "pt"])
def test_human_labels_replace_the_training_labels(folder, kind):
    """Training labels are human labels, test labels stay clean; both file formats are read."""
    if kind == "npz":
        np.savez(folder / "cifar10n_labels.npz", **human_tables())
    else:
        write_torch_file(folder / "CIFAR-10_human.pt", human_tables())
    data = load_cifar10n("worst", folder)
    np.testing.assert_array_equal(data.train_labels, (clean_labels() + 1) % 10)
    np.testing.assert_array_equal(data.test_labels, batch(5)[b"labels"])
    np.testing.assert_array_equal(load_cifar10n("aggregate", folder).train_labels, clean_labels())


def test_human_labels_are_checked(folder, tmp_path):
    """Unknown kinds, missing or hostile files, other images and labels out of range are refused."""
    with pytest.raises(InvalidInputError, match="`kind` must be one of"):
        load_cifar10n("best", folder)
    with pytest.raises(InvalidInputError, match=r"must contain cifar10n_labels.npz or CIFAR-10_human.pt"):
        load_cifar10n("worst", folder)
    pt, npz = folder / "CIFAR-10_human.pt", folder / "cifar10n_labels.npz"
    write_torch_file(pt, {"clean_label": Malicious(os.mkdir, str(tmp_path / "broken_in"))})
    with pytest.raises(InvalidInputError, match=r"it tries to build posix\.mkdir"):
        load_cifar10n("worst", folder)
    assert not (tmp_path / "broken_in").exists()
    pt.write_bytes(b"not an archive")
    with pytest.raises(InvalidInputError, match="cannot be read as labels"):
        load_cifar10n("worst", folder)
    np.savez(npz, clean_label=np.array([object()], dtype=object))
    with pytest.raises(InvalidInputError, match="cannot be read as labels"):
        load_cifar10n("worst", folder)
    np.savez(npz, clean_label=clean_labels())
    with pytest.raises(InvalidInputError, match="must hold 'worse_label'"):
        load_cifar10n("worst", folder)
    np.savez(npz, **{**human_tables(), "clean_label": (clean_labels() + 3) % 10})
    with pytest.raises(InvalidInputError, match="do not match these images"):
        load_cifar10n("worst", folder)
    np.savez(npz, **{**human_tables(), "worse_label": clean_labels() + 10})
    with pytest.raises(InvalidInputError, match=r"'worse_label' must hold 15 labels in 0..9"):
        load_cifar10n("worst", folder)
    for others in (clean_labels() + 0.5, clean_labels().astype(str), clean_labels()[:0]):
        np.savez(npz, **{**human_tables(), "worse_label": others})
        with pytest.raises(InvalidInputError, match=r"whole numbers; got shape .*\. Download CIFAR-10_human"):
            load_cifar10n("worst", folder)


def test_files_written_by_torch_are_read(folder):
    """``torch.save`` writes NumPy arrays in the format of the published labels."""
    torch = pytest.importorskip("torch")
    stream = io.BytesIO()
    torch.save(human_tables(), stream)
    (folder / "CIFAR-10_human.pt").write_bytes(stream.getvalue())
    np.testing.assert_array_equal(load_cifar10n("worst", folder).train_labels, (clean_labels() + 1) % 10)


# -- files that request too much memory or attack the reader ------------------------------------------------


def test_a_small_pickle_cannot_allocate_gigabytes(folder):
    """The unpickler allocates memory for the largest index of a stored value, which is limited."""
    body = b"\x80\x02Nr\xff\xff\xff\x0f."
    assert len(body) == 9
    (folder / "cifar-10-batches-py" / "data_batch_1").write_bytes(body)
    with pytest.raises(
        InvalidInputError, match=r"data_batch_1 is refused: instruction 2 stores value 268435455"
    ):
        load_cifar10(folder)


def test_a_pickle_with_too_many_instructions_is_refused(folder, monkeypatch):
    """One byte creates an empty dict of 64 bytes."""
    monkeypatch.setattr(_integer_pickles, "MAX_INSTRUCTIONS", 100)
    (folder / "cifar-10-batches-py" / "data_batch_1").write_bytes(b"\x80\x02" + b"}" * 200 + b".")
    with pytest.raises(InvalidInputError, match="more than 100 instructions"):
        load_cifar10(folder)


@pytest.mark.parametrize(
    "name", [b"_codecs\nencode", b"numpy\nndarray", b"numpy.core.multiarray\n_reconstruct"]
)
@pytest.mark.parametrize(
    "state", [b"}U\x07changedK\x01s", b"N}U\x07changedK\x01s\x86"], ids=["dict", "slots"]
)
def test_a_pickle_cannot_change_the_reader(folder, name, state):
    """The functions can be called, but their attributes cannot be set."""
    (folder / "cifar-10-batches-py" / "data_batch_1").write_bytes(b"\x80\x02c" + name + b"\n" + state + b"b.")
    with pytest.raises(InvalidInputError, match="it tries to change the reader"):
        load_cifar10(folder)


@pytest.mark.parametrize(
    "double", [b"q\x00h\x00\x86", b"2\x86", b"Nbq\x00h\x00\x86", b"N0q\x00h\x00\x86", b"q\x01q\x00h\x01\x86"]
)
def test_a_pickle_cannot_take_exponential_time(folder, double):
    """Hashing a key of nested tuples, each containing the previous one twice, would never end."""
    key = b")" + double * 200
    (folder / "cifar-10-batches-py" / "data_batch_1").write_bytes(b"\x80\x02}" + key + b"K\x01s.")
    with pytest.raises(InvalidInputError, match="it reuses tuples more than 20 times"):
        load_cifar10(folder)


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_protocols(folder, protocol):
    """Arrays and lists with shared elements are read in protocols 0 to 4."""
    (folder / "cifar-10-batches-py" / "test_batch").write_bytes(pickle.dumps(batch(9), protocol=protocol))
    if protocol == 5:  # uses another function, which CIFAR-10 does not need
        with pytest.raises(InvalidInputError, match="it tries to build"):
            load_cifar10(folder)
    else:
        np.testing.assert_array_equal(load_cifar10(folder).test_labels, batch(9)[b"labels"])


def test_labels_that_unpack_to_too_much_are_refused(folder, monkeypatch):
    """A small archive of zeros, and a header that declares more data than there is."""
    monkeypatch.setattr(_open_limited, "FREE_BYTES", 1000)
    path = folder / "cifar10n_labels.npz"
    np.savez_compressed(path, clean_label=np.zeros(10**6, dtype=np.int64))
    with pytest.raises(
        InvalidInputError, match=r"cifar10n_labels.npz unpacks to more than .* unpack it and pass"
    ):
        load_cifar10n("worst", folder)
    header = io.BytesIO()
    declared = {"descr": "<i8", "fortran_order": False, "shape": (10**12,)}
    np.lib.format.write_array_header_1_0(header, declared)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("clean_label.npy", header.getvalue() + bytes(80))
    with pytest.raises(
        InvalidInputError, match=r"shape \(1000000000000,\).*8000000000000 bytes, but the file has 80"
    ):
        load_cifar10n("worst", folder)


def test_other_arrays_of_the_archive_are_not_read(folder, monkeypatch):
    """A large array that is not needed does not matter."""
    monkeypatch.setattr(_open_limited, "FREE_BYTES", 1000)
    np.savez_compressed(folder / "cifar10n_labels.npz", **human_tables(), other=np.zeros(10**6))
    np.testing.assert_array_equal(load_cifar10n("worst", folder).train_labels, (clean_labels() + 1) % 10)
