"""Corrupt model folders, update their hashes, and check that the interpreter does not crash.

Every case runs in its own process, forked from one that has only imported modules. Run as a program::

    python -m tests.persistence.fuzz_folders FOLDER_OF_MODELS FIRST_SEED LAST_SEED
"""

import io
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import warnings
import zipfile
from collections import Counter
from hashlib import sha256
from pathlib import Path

import lightgbm  # noqa: F401 - imported once, before the fork
import numpy as np
import pandas as pd
import safetensors.numpy
import xgboost  # noqa: F401 - as above

from peerloss import load_model
from peerloss.exceptions import ModelFolderError

SECONDS, BYTES = 60, 6 * 2**30
EXTREMES = (
    -1,
    0,
    1,
    2,
    -2,
    7,
    255,
    256,
    10**6,
    2**31 - 1,
    2**31,
    -(2**31),
    2**63 - 1,
    2**63,
    -(2**63),
    10**30,
)
ODD = (None, True, False, "", "x", "precomputed", 0.5, -0.5, 1e300, [], {}, [1, 2, 3], "[0]", "-1", "1" * 30)


# -- changes ----------------------------------------------------------------------------------------------


def corrupt(files, rng):
    """Make one to three changes to the files of a folder."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        name = rng.choice(sorted(files))
        kind = name.split("-")[0].split(".")[0]
        files[name] = {
            "state": _corrupt_json,
            "arrays": _corrupt_arrays,
            "parts": _corrupt_parts,
            "booster": _corrupt_booster,
        }[kind](files[name], rng)


def _corrupt_json(content, rng):
    data = json.loads(content)
    _corrupt_tree(data, rng)
    return json.dumps(data).encode()


def _corrupt_tree(data, rng):
    """Replace, copy, remove or repeat an entry of nested lists and dicts."""
    places = list(_places(data))
    if not places:
        return
    holder, key = rng.choice(places)
    action = rng.random()
    if action < 0.5:
        holder[key] = _other(holder[key], rng)
    elif action < 0.75:
        other, place = rng.choice(places)
        holder[key] = json.loads(json.dumps(other[place]))
    elif action < 0.85 and isinstance(holder, list):
        holder.insert(key, json.loads(json.dumps(holder[key])))
    else:
        del holder[key]


def _places(data):
    items = data.items() if isinstance(data, dict) else enumerate(data)
    for key, value in list(items):
        yield data, key
        if isinstance(value, dict | list):
            yield from _places(value)


def _other(value, rng):
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return rng.choice((*EXTREMES, *ODD))
    if isinstance(value, str):
        try:  # skops and XGBoost write numbers as text
            return json.dumps(_other(json.loads(value), rng))
        except ValueError:
            return rng.choice((value[:-1], value + "x", *(str(odd) for odd in ODD)))
    return rng.choice((*EXTREMES, value + 1, value - 1, -value))


def _corrupt_arrays(content, rng):
    arrays = safetensors.numpy.load(content)
    if not arrays:
        return content
    name = rng.choice(sorted(arrays))
    arrays[name] = _corrupt_array(arrays[name], rng, others=list(arrays.values()))
    return safetensors.numpy.save({key: np.ascontiguousarray(array) for key, array in arrays.items()})


def _corrupt_array(array, rng, others=()):
    array = array.copy()
    action = rng.random()
    if action < 0.6 and array.size:
        _set_element(array, rng)
    elif action < 0.7:
        array = array[: rng.randrange(len(array) + 1)] if array.ndim else array[None]
    elif action < 0.75 and array.ndim:
        array = np.concatenate([array, array])
    elif action < 0.8:
        array = array.reshape(-1) if rng.random() < 0.5 else array[None]
    elif action < 0.85 and array.ndim > 1:
        array = array[:, : rng.randrange(array.shape[1] + 1)] if rng.random() < 0.5 else array.T
    elif action < 0.95 and array.dtype.names is None:
        array = array.astype(rng.choice(("i1", "i4", "i8", "f4", "f8", "u1", "?")))
    elif others:
        array = rng.choice(others)
    return array


def _set_element(array, rng):
    field = array if array.dtype.names is None else array[rng.choice(array.dtype.names)]
    flat = field.reshape(-1) if field.flags.c_contiguous else field
    rows = range(flat.size) if rng.random() < 0.3 else [rng.randrange(flat.size)]
    value = rng.choice((*EXTREMES, 0.5, -1e300, float("nan"), float("inf")))
    for row in rows:
        try:
            with np.errstate(all="ignore"):
                flat[row] = np.asarray(value).astype(flat.dtype)
        except (TypeError, ValueError, OverflowError):
            return


def _corrupt_parts(content, rng):
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    arrays = sorted(name for name in files if name.endswith(".npy"))
    if arrays and rng.random() < 0.5:
        name = rng.choice(arrays)
        stream = io.BytesIO()
        np.save(stream, _corrupt_array(np.load(io.BytesIO(files[name])), rng))
        files[name] = stream.getvalue()
    else:
        files["schema.json"] = _corrupt_json(files["schema.json"], rng)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return packed.getvalue()


def _corrupt_booster(content, rng):
    if content.startswith(b"{"):
        return _corrupt_json(content, rng)
    lines = content.decode().split("\n")
    end = lines.index("end of trees") if "end of trees" in lines else len(lines)
    row = rng.randrange(end)
    if rng.random() < 0.2:
        lines[row] = lines[rng.randrange(end)] if rng.random() < 0.5 else ""
        return "\n".join(lines).encode()
    name, _, values = lines[row].partition("=")
    words = values.split(" ")
    place = rng.randrange(len(words))
    words[place] = rng.choice(
        [str(extreme) for extreme in EXTREMES] + ["nan", "inf", "x", "", "0.5", words[0]]
    )
    lines[row] = f"{name}={' '.join(words)}"
    return "\n".join(lines).encode()


# -- cases ------------------------------------------------------------------------------------------------


def run_case(models, seed):
    """Corrupt a copy of a model, load it and predict; return the outcome."""
    rng = random.Random(seed)  # noqa: S311 - not used for security
    number = seed % len([path for path in models.iterdir() if path.is_dir()])
    files = {path.name: path.read_bytes() for path in (models / str(number)).iterdir()}
    manifest = json.loads(files.pop("manifest.json"))
    corrupt(files, rng)
    manifest["files"] = {name: sha256(content).hexdigest() for name, content in files.items()}
    folder = Path(tempfile.mkdtemp(dir=models.parent))
    try:
        for name, content in files.items():
            (folder / name).write_bytes(content)
        (folder / "manifest.json").write_text(json.dumps(manifest))
        return _in_child(folder, models / f"{number}.features")
    finally:
        shutil.rmtree(folder)


def _in_child(folder, features):
    child = os.fork()
    if not child:
        code = 3
        try:
            signal.alarm(SECONDS)
            resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            code = _outcome(folder, features)
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return f"killed by {signal.Signals(os.WTERMSIG(status)).name}"
    return ("predicted", "failed to predict", "rejected", "other error at load")[
        min(os.WEXITSTATUS(status), 3)
    ]


def _outcome(folder, features):
    warnings.simplefilter("ignore")
    try:
        model = load_model(folder)
    except ModelFolderError:
        return 2
    rows = pd.read_pickle(features)  # noqa: S301 - written by this test
    try:
        for method in (model.predict_proba, model.predict):
            method(rows)
    except Exception:  # noqa: BLE001 - any error is acceptable
        return 1
    return 0


def main():
    """Print the number of cases per outcome, and the seeds of the bad ones."""
    models, first, last = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    outcomes = {seed: run_case(models, seed) for seed in range(first, last)}
    good = {"predicted", "failed to predict", "rejected"}
    bad = {seed: outcome for seed, outcome in outcomes.items() if outcome not in good}
    sys.stdout.write(json.dumps({"counts": Counter(outcomes.values()), "bad": bad}) + "\n")


if __name__ == "__main__":
    main()
