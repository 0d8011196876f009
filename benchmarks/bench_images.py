"""Audits of image folders without a pretrained model: which features rank wrong labels best.

``python benchmarks/bench_images.py --data digits --seeds 1`` writes the digits of scikit-learn as PNG files
into class folders, with wrong labels added. ``--data cifar10n`` does the same for 2,000 images of CIFAR-10
and the human labels "worst" of CIFAR-10N, from PEERLOSS_DATA. Each folder is read and audited as `peerloss
audit` does it, once with the built-in statistics and once with pixels. ``--output FILE`` writes the table.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from measure import provenance, publish
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score

from peerloss import NoiseModel, find_label_issues, flip_labels
from peerloss.datasets import load_cifar10, load_cifar10n, read_image, read_image_folder
from peerloss.features import image_features, principal_components

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Images of CIFAR-10 per seed; rates of the noise that is added to digits.
IMAGES, RATES = 2000, (0.0, 0.1, 0.3)
SIDE = 32


def cases(name: str, seed: int) -> Iterator[tuple[str, Any, Any, Any]]:
    """Yield a description, pixels, given labels and clean labels."""
    if name == "digits":
        digits = load_digits()
        pixels = (digits.images * 255 / 16).astype(np.uint8)
        for rate in RATES:
            noise = NoiseModel.uniform(10, rate)
            given = flip_labels(digits.target, noise, random_state=seed)
            yield f"digits, {rate:.0%} wrong", pixels, given, digits.target
    else:
        clean, given = load_cifar10(), load_cifar10n("worst").train_labels
        rows = np.random.default_rng(seed).choice(len(given), IMAGES, replace=False)
        yield "CIFAR-10N worst", clean.train_images[rows], given[rows], clean.train_labels[rows]


def write_folder(folder: Path, pixels: Any, given: Any) -> None:
    """Write class folders of PNG files; the number of the image is its name."""
    for place, (image, label) in enumerate(zip(pixels, given, strict=True)):
        (folder / str(label)).mkdir(exist_ok=True)
        Image.fromarray(image).save(folder / str(label) / f"{place}.png")


def pixel_features(paths: list[Path]) -> Any:
    """Return principal components of the pixels, the alternative without any thought."""
    images = [Image.fromarray(read_image(path)).resize((SIDE, SIDE), 2) for path in paths]
    return principal_components(np.stack([np.asarray(image).ravel() for image in images]))


def audits(name: str, seed: int) -> Iterator[str]:
    """Yield one line of the table per case and kind of features."""
    for title, pixels, given, clean in cases(name, seed):
        with tempfile.TemporaryDirectory() as place:
            write_folder(Path(place), pixels, given)
            start = time.perf_counter()
            found = read_image_folder(place)
            reading = time.perf_counter() - start
            rows = np.array([int(path.stem) for path in found.paths])
            wrong = given[rows] != clean[rows]
            for kind, compute in (("statistics", image_features), ("pixels", pixel_features)):
                start = time.perf_counter()
                X = compute(found.paths)
                middle = time.perf_counter()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # noise that cannot be estimated
                    table = find_label_issues(X, found.table["label"]).table
                seconds = (reading, middle - start, time.perf_counter() - middle)
                scores = [f"{score:.3f}" for score in scored(wrong, table)] if wrong.any() else ["–"] * 3
                shares = [f"{share:.1%}" for share in (table["flagged"].mean(), wrong.mean())]
                times = [f"{second:.0f}" for second in seconds]
                yield f"| {' | '.join([title, str(seed), kind, *scores, *shares, *times])} |"


def scored(wrong: Any, table: Any) -> tuple[float, float, float]:
    """Return AUROC and average precision of the ranking, and F1 of the flags."""
    return (
        roc_auc_score(wrong, table["p_error"]),
        average_precision_score(wrong, table["p_error"]),
        f1_score(wrong, table["flagged"]),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", nargs="+", default=["digits", "cifar10n"], choices=["digits", "cifar10n"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--output", type=Path, help="file for the table")
    options = parser.parse_args()
    columns = "data | seed | features | AUROC | AP | F1 of the flags | flagged | wrong"
    lines = [
        provenance("cpu") + ".",
        "",
        f"| {columns} | reading, s | features, s | audit, s |",
        "|---" * 11 + "|",
    ]
    for name in options.data:
        for seed in options.seeds:
            lines += audits(name, seed)
    publish("\n".join(lines) + "\n", options.output)


if __name__ == "__main__":
    main()
