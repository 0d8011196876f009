"""Model folders: fitted classifiers on disk, without pickle.

::

    manifest.json        format, versions, class, classes, names of the features, a SHA-256 of each file
    state.json           parameters and fitted attributes, only of listed types
    arrays.safetensors   their numbers: network weights, calibration, priors
    parts.skops          scikit-learn objects
    booster-*            LightGBM or XGBoost models in the formats of those libraries
"""

from __future__ import annotations

import hashlib
import json
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import safetensors.numpy
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from peerloss._classifier import NoisyLabelClassifier
from peerloss._files import atomic_folder
from peerloss.exceptions import InvalidInputError, ModelFolderError
from peerloss.persistence._skops_parts import dump_parts, load_parts
from peerloss.persistence._state import Reader, Writer
from peerloss.persistence.manifest import (
    ARRAYS,
    FORMAT,
    FORMAT_VERSION,
    MANIFEST,
    PARTS,
    STATE,
    check_replaceable,
    read_files,
    read_manifest,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sklearn.base import BaseEstimator

_LIBRARIES = ("peerloss", "numpy", "pandas", "scikit-learn", "scipy", "torch", "skops", "safetensors")


def save_model(
    model: BaseEstimator,
    folder: str | Path,
    *,
    trusted: Sequence[str] = (),
    reading: Mapping[str, Any] | None = None,
) -> Path:
    """Save a fitted classifier of this library, or a pipeline that ends in one, as a folder without pickle.

    The write is atomic. An existing folder is replaced only if it is a model folder.

    Parameters
    ----------
    model
        A fitted classifier.
    folder
        Path of the new folder; parent folders are created.
    trusted
        Names of further types inside the model, such as ``"lightgbm.sklearn.LGBMClassifier"``. The error
        names the missing ones. Linear models, naive Bayes, discriminant analysis, support vector machines,
        trees, forests, boosting, bagging and voting of scikit-learn need not be named, nor do the usual
        scalers, encoders and text vectorizers. Nearest neighbours, Gaussian processes and ``MLPClassifier``,
        for example, must be named, because their content cannot be checked.
    reading
        How the table of the training was read, as ``ReadOptions.as_dict`` returns it; it is written to the
        manifest.

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    InvalidInputError
        If the model is not a classifier of this library, or an attribute cannot be saved; it is named.
    ModelFolderError
        If ``folder`` exists and is not a model folder.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from peerloss import MarginPerceptron
    >>> X = np.random.default_rng(0).normal(size=(100, 2))
    >>> model = MarginPerceptron(random_state=0).fit(X, X[:, 0] > 0)
    >>> with tempfile.TemporaryDirectory() as home:
    ...     same = load_model(save_model(model, f"{home}/model"))
    >>> bool((same.predict_proba(X) == model.predict_proba(X)).all())
    True
    """
    if not _is_savable(model):
        raise InvalidInputError(
            "`model` must be a classifier of peerloss, or a Pipeline whose last step is one; got "
            f"{type(model).__name__}. Save other models with skops."
        )
    check_is_fitted(model)
    target = Path(folder).resolve()
    check_replaceable(target)
    state = Writer().write(model)
    files = {
        STATE: _json({"root": state.root, "objects": state.objects}),
        ARRAYS: safetensors.numpy.save(state.arrays),
        **state.boosters,
    }
    if state.parts:
        files[PARTS] = dump_parts(state.parts, trusted)
    files[MANIFEST] = _json(_manifest(model, files) | {"reading": dict(reading or {})}, indent=2)
    with atomic_folder(target) as fresh:
        for name, content in files.items():
            (fresh / name).write_bytes(content)
    return Path(folder)


def load_model(folder: str | Path, *, trusted: Sequence[str] = ()) -> Any:
    """Load a classifier that :func:`save_model` saved.

    Nothing is unpickled. Only types of a fixed list are built, of this library and of scikit-learn. Every
    index and shape that compiled code would use without a check is checked first. Boosters are rewritten from
    checked values before LightGBM or XGBoost reads them.

    Parameters
    ----------
    folder
        A model folder.
    trusted
        Names of further types that may be built, as passed to :func:`save_model`. Their content is not
        checked, so use it only for folders from a source that you trust.

    Raises
    ------
    ModelFolderError
        If the folder does not exist, is not a model folder, is damaged, was written by a newer version, or
        names a type that is not trusted.
    """
    home = Path(folder)
    files = read_files(home, read_manifest(home)["files"])
    try:
        state = json.loads(files[STATE])
        arrays = safetensors.numpy.load(files[ARRAYS])
        root, objects = state["root"], state["objects"]
    except Exception as error:  # parsers may raise anything for hostile bytes
        raise ModelFolderError(f"{home} cannot be loaded: its state cannot be read: {error!r}.") from error
    try:
        parts = load_parts(files[PARTS], trusted) if PARTS in files else []
        model = Reader(objects, arrays=arrays, parts=parts, boosters=files).read(root)
    except ModelFolderError as error:
        raise ModelFolderError(f"{home} cannot be loaded: {error}") from error
    if not _is_savable(model):
        raise ModelFolderError(
            f"{home} cannot be loaded: it contains a value of type {type(model).__name__}, not a classifier."
        )
    return model


def _is_savable(model: Any) -> bool:
    if isinstance(model, Pipeline):
        return bool(getattr(model, "steps", None)) and _is_savable(model.steps[-1][1])
    return isinstance(model, NoisyLabelClassifier)


def _manifest(model: Any, files: Mapping[str, bytes]) -> dict[str, Any]:
    names = getattr(model, "feature_names_in_", None)
    steps = [step for _, step in model.steps] if isinstance(model, Pipeline) else [model]
    boosted = {file.split(".")[-1] for file in files if file.startswith("booster-")}
    libraries = [*_LIBRARIES, *(["lightgbm"] if "txt" in boosted else [])]
    libraries += ["xgboost"] if "json" in boosted else []
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "class": type(steps[-1]).__name__,
        "steps": [type(step).__name__ for step in steps],
        "classes": [str(label) for label in model.classes_],
        "feature_names": None if names is None else [str(name) for name in names],
        "versions": {library: _version(library) for library in libraries},
        "files": {file: hashlib.sha256(content).hexdigest() for file, content in sorted(files.items())},
    }


def _version(library: str) -> str | None:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return metadata.version("xgboost-cpu") if library == "xgboost" else None


def _json(content: Any, *, indent: int | None = None) -> bytes:
    return (json.dumps(content, ensure_ascii=False, allow_nan=False, indent=indent) + "\n").encode()
