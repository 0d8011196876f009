"""Folders like those of CIFAR-10, CIFAR-100 and their human labels, with few images of visible classes."""

import pickle

import numpy as np

ROWS = 50  # in each of the six files of CIFAR-10
ROWS_100 = 250  # in the training file of CIFAR-100


def _rows(seed, n, k):
    """Return pixels whose mean colour shows the class, and labels."""
    random = np.random.default_rng(seed)
    labels = random.integers(k, size=n)
    bright = np.stack([250 / k * labels, 250 - 250 / k * labels, 125 * (labels % 3)], axis=1)
    pixels = random.normal(bright[:, :, None], 20, size=(n, 3, 1024)).clip(0, 255)
    return pixels.reshape(n, 3072).astype(np.uint8), labels.tolist()


def _noisy(clean, k):
    return np.where(np.random.default_rng(9).random(len(clean)) < 0.3, (clean + 1) % k, clean)


def write_cifar(folder):
    """Write the files of CIFAR-10 and CIFAR-10N and return the folder."""
    inner = folder / "cifar-10-batches-py"
    inner.mkdir(parents=True)
    batches = [dict(zip((b"data", b"labels"), _rows(seed, ROWS, 10), strict=True)) for seed in range(6)]
    names = [*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]
    for name, batch in zip(names, batches, strict=True):
        (inner / name).write_bytes(pickle.dumps(batch, protocol=2))
    clean = np.concatenate([batch[b"labels"] for batch in batches[:5]])
    names = ("worse_label", "aggre_label", "random_label1", "random_label2", "random_label3")
    np.savez(folder / "cifar10n_labels.npz", clean_label=clean, **dict.fromkeys(names, _noisy(clean, 10)))
    return folder


def write_cifar100(folder):
    """Write the files of CIFAR-100 and CIFAR-100N and return the folder."""
    inner = folder / "cifar-100-python"
    inner.mkdir(parents=True)
    for seed, (name, n) in enumerate((("train", ROWS_100), ("test", ROWS))):
        pixels, labels = _rows(seed, n, 100)
        coarse = [label // 5 for label in labels]
        batch = {b"data": pixels, b"fine_labels": labels, b"coarse_labels": coarse}
        (inner / name).write_bytes(pickle.dumps(batch, protocol=2))
    clean = np.array(_rows(0, ROWS_100, 100)[1])
    np.savez(folder / "cifar100n_labels.npz", clean_label=clean, noisy_label=_noisy(clean, 100))
    return folder
