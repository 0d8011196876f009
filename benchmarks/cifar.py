"""``peerloss reproduce cifar10`` and ``cifar10n`` where the package's other dependencies are not installed.

Run ``PYTHONPATH=src python benchmarks/cifar.py --data FOLDER --noise uniform:0.4 worst --method ce peer``;
torch, NumPy, SciPy and scikit-learn are enough. Uniform noise has the recipes of cifar10, human labels those
of cifar10n; ``--set name=value`` changes them. All runs share one process, so that compilation is paid once.
Records go to ``OUTPUT/cifar10`` and ``OUTPUT/cifar10n``; what is there is skipped, and the command line of
the package makes its table from the same folder.
"""

from __future__ import annotations

import argparse
import sys
import types
from importlib.util import find_spec
from pathlib import Path

import peerloss


def skip_tables() -> None:
    """Let modules for images be imported without their packages' other half, which needs more."""
    for name in ("peerloss.datasets", "peerloss.experiments"):
        package = types.ModuleType(name)
        package.__path__ = [str(Path(peerloss.__file__).parent / name.rpartition(".")[2])]
        sys.modules[name] = package


if any(find_spec(name) is None for name in ("pandas", "skops")):
    skip_tables()

from peerloss._device import resolve_device  # noqa: E402 (see above)
from peerloss.datasets.cifar10 import HUMAN_LABELS  # noqa: E402
from peerloss.experiments.cifar import (  # noqa: E402
    Workshop,
    cifar_table,
    load_cifar,
    run_cifar,
)


def main() -> None:
    """Run what is asked for and not in the folder yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", help="folder of CIFAR-10; PEERLOSS_DATA if not given")
    parser.add_argument("--noise", nargs="+", default=["uniform:0.4"])
    parser.add_argument("--method", nargs="+", help="all of the spec if not given")
    parser.add_argument("--seeds", type=int, default=1, help="how many")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument(
        "--set", nargs="*", action="extend", default=[], metavar="NAME=VALUE", help="change the recipe"
    )
    parser.add_argument("--output", type=Path, default=Path("runs"))
    parser.add_argument("--device", help="a GPU where there is one if not given")
    parser.add_argument("--smoke", action="store_true", help="few images, four epochs")
    parser.add_argument("--closed", action="store_true", help="leave the test set unread")
    options = parser.parse_args()
    workshop = Workshop(options.data, resolve_device(options.device))
    human = [noise for noise in options.noise if noise in HUMAN_LABELS]
    made = [noise for noise in options.noise if noise not in HUMAN_LABELS]
    for name, noise in (("cifar10", made), ("cifar10n", human)):
        if noise:
            experiment = load_cifar(
                name,
                noise=noise,
                methods=options.method,
                seeds=options.seeds,
                first_seed=options.first_seed,
                changes=options.set,
                smoke=options.smoke,
                closed=options.closed,
            )
            summary = run_cifar(experiment, options.output, workshop=workshop, on_result=tell)
            print(cifar_table(experiment, summary.records), *summary.failed.items(), sep="\n", flush=True)


def tell(record: dict[str, object]) -> None:
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
