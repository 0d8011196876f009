"""A folder like that of CIFAR-10 and CIFAR-10N, with few images whose mean colour shows the class."""

import pickle

import numpy as np

ROWS = 50  # in each of the six files


def _batch(seed):
    random = np.random.default_rng(seed)
    labels = random.integers(10, size=ROWS)
    bright = np.stack([25 * labels, 250 - 25 * labels, 125 * (labels % 3)], axis=1)
    pixels = random.normal(bright[:, :, None], 20, size=(ROWS, 3, 1024)).clip(0, 255)
    return {b"data": pixels.reshape(ROWS, 3072).astype(np.uint8), b"labels": labels.tolist()}


def write_cifar(folder):
    """Write the files and return the folder."""
    inner = folder / "cifar-10-batches-py"
    inner.mkdir(parents=True)
    batches = [_batch(seed) for seed in range(6)]
    names = [*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]
    for name, batch in zip(names, batches, strict=True):
        (inner / name).write_bytes(pickle.dumps(batch, protocol=2))
    clean = np.concatenate([batch[b"labels"] for batch in batches[:5]])
    noisy = np.where(np.random.default_rng(9).random(len(clean)) < 0.3, (clean + 1) % 10, clean)
    names = ("worse_label", "aggre_label", "random_label1", "random_label2", "random_label3")
    np.savez(folder / "cifar10n_labels.npz", clean_label=clean, **dict.fromkeys(names, noisy))
    return folder
