"""``peerloss reproduce cifar10``, ``cifar10n``, ``cifar100`` and ``cifar100n`` with few dependencies.

Run ``PYTHONPATH=src python benchmarks/cifar.py --data FOLDER --noise uniform:0.4 worst --method ce peer``. It
needs torch, NumPy, SciPy and scikit-learn. Synthetic noise uses the recipes of cifar10, human labels those of
cifar10n; with ``--images cifar100`` those of cifar100 and cifar100n. ``--set name=value`` changes them. All
runs share one process, so that networks are compiled once.
Records are written to the folder OUTPUT; runs that are done are skipped, and ``peerloss reproduce``,
``peerloss status`` and ``peerloss report`` read the same folder.
"""

from __future__ import annotations

import argparse
import sys
import types
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, cast

import peerloss


def skip_tables() -> None:
    """Make the modules for images importable without the dependencies of the modules for tables."""
    for name in ("peerloss.datasets", "peerloss.experiments"):
        package = types.ModuleType(name)
        package.__path__ = [str(Path(peerloss.__file__).parent / name.rpartition(".")[2])]
        sys.modules[name] = package


if any(find_spec(name) is None for name in ("pandas", "skops")):
    skip_tables()

from peerloss.experiments._experiment import load_experiment  # noqa: E402 (see above)
from peerloss.experiments._image_noise import IMAGES  # noqa: E402
from peerloss.experiments._run_experiment import run_experiment  # noqa: E402
from peerloss.experiments._store import Store  # noqa: E402
from peerloss.experiments.cifar import SharedResources, cifar_table  # noqa: E402

if TYPE_CHECKING:
    from peerloss.experiments import Record
    from peerloss.experiments.cifar import CifarExperiment


def main() -> None:
    """Execute the requested runs that are not in the folder yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", help="folder of the images; default: PEERLOSS_DATA")
    parser.add_argument("--images", choices=list(IMAGES), default="cifar10")
    parser.add_argument("--noise", nargs="+", default=["uniform:0.4"])
    parser.add_argument("--method", nargs="+", help="default: all methods of the experiment")
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument(
        "--set", nargs="*", action="extend", default=[], metavar="NAME=VALUE", help="change a setting"
    )
    parser.add_argument("--output", type=Path, default=Path("runs"))
    parser.add_argument("--device", help="default: a GPU if there is one")
    parser.add_argument("--checkpoint-every", type=int, default=1, metavar="EPOCHS")
    parser.add_argument("--smoke", action="store_true", help="few images, four epochs")
    parser.add_argument("--closed", action="store_true", help="do not read the test set")
    options = parser.parse_args()
    images, known = options.images, IMAGES[options.images].human_labels
    resources = SharedResources(options.data, options.device, options.checkpoint_every, images=images)
    human = [noise for noise in options.noise if noise in known]
    synthetic = [noise for noise in options.noise if noise not in known]
    for name, noise in ((images, synthetic), (f"{images}n", human)):
        if noise:
            experiment = load_experiment(
                name,
                noise=noise,
                methods=options.method,
                seeds=options.seeds,
                first_seed=options.first_seed,
                changes=options.set,
                smoke=options.smoke,
                closed=options.closed,
            )
            with Store(options.output) as store:
                summary = run_experiment(experiment, store, resources=resources, on_record=print_record)
            table = cifar_table(cast("CifarExperiment", experiment), summary.records)
            print(table, *summary.failed.items(), sep="\n", flush=True)


def print_record(record: Record) -> None:
    """Print the results of a run."""
    names = (
        "noise",
        "method",
        "seed",
        "test",
        "held_out",
        "best_epoch",
        "best_score",
        "last_score",
        "seconds",
        "memory_gib",
    )
    print({name: record[name] for name in names if name in record}, flush=True)


if __name__ == "__main__":
    main()
