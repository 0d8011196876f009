"""Stores with made-up, known results."""

from peerloss.experiments import Store
from peerloss.experiments._record import FORMAT, IDENTITY, run_key

#: A name that is a tag, a formula, a path and a cell border at once.
HOSTILE = "<script>document.title='owned'</script>$\\frac|../"


def record(**changes):
    """Return the fields of one record; ``test_accuracy`` is a number for one trial or a list for several."""
    accuracy = changes.pop("test_accuracy", 0.8)
    accuracies = accuracy if isinstance(accuracy, list) else [accuracy]
    made = {
        "format": FORMAT,
        "experiment": "table-a1",
        "protocol": "paper",
        "data_set": "heart",
        "e_neg": 0.1,
        "e_pos": 0.3,
        "prior": "original",
        "method": "peer",
        "seed": 0,
        "spec": "0123",
        "split": "4567",
        "n_test": 40,
        "choose": "seed",
        "trials": {"settings": {}, "noisy_validation": [0.5] * len(accuracies), "test_accuracy": accuracies},
        "chosen": 0,
        "curve": None,
        "plane": None,
        "seconds": 1.0,
        "finished": "2026-01-01T00:00:00.000+00:00",
        "versions": {"peerloss": "0.1.0"},
        "machine": {"cores": 2},
    } | changes
    made["key"] = run_key({name: made[name] for name in IDENTITY}, str(made["spec"]))
    return made


def row(accuracies, **place):
    """Return the records of one row: method → accuracies, one per seed."""
    return [
        record(method=method, seed=seed, test_accuracy=value, **place)
        for method, values in accuracies.items()
        for seed, value in enumerate(values)
    ]


def curve(**recorded):
    """Return what is recorded during training, at steps 10, 20, …."""
    (length,) = {len(values) for values in recorded.values()}
    return {"step": [10 * (i + 1) for i in range(length)]} | recorded


def plane():
    """Return a decision boundary in the middle of the first feature."""
    x = [-1.0, 0.0, 1.0]
    return {
        "x": x,
        "y": x,
        "probability": [[0.1, 0.5, 0.9]] * 3,
        "points": [[-0.5, 0.0], [0.5, 0.0]],
        "noisy_labels": [0, 1],
    }


def everything():
    """Return records with a table, curves, boundaries and invariance, and a hostile name."""
    made = row({"peer": [0.85, 0.87], "surrogate": [0.80, 0.78], "nn": [0.75, 0.77]})
    made += row({"peer": [0.6, 0.7], "surrogate": [0.9, 0.8], "nn": [0.7, 0.7]}, data_set=HOSTILE)
    made += row({"peer": [0.9], "surrogate": [None], "nn": [0.5]}, data_set="german")
    for seed in (0, 1):
        for method in ("peer", "nn"):
            path = curve(test_accuracy=[0.5, 0.6 + 0.1 * seed])
            made.append(record(experiment="curves", data_set=HOSTILE, method=method, seed=seed, curve=path))
        losses = {"train_clean_peer_loss": [-1.0, -2.0], "train_noisy_peer_loss": [-0.7, -1.4]}
        losses |= {"validation_clean_peer_loss": [-1.0, -2.0], "validation_noisy_peer_loss": [-0.6, -1.2]}
        made.append(record(experiment="invariance", seed=seed, curve=curve(**losses)))
    made += [
        record(experiment="boundary", method=m, data_set="circles", plane=plane()) for m in ("peer", "nn")
    ]
    return made


def store(folder, records):
    """Write records as ``peerloss reproduce`` does; return the folder."""
    with Store(folder) as made:
        made.append(records)
    return folder
