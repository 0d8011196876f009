"""The numbers behind an audit, stored in its folder so that decisions can re-rank it without training.

probabilities.npy   out-of-fold probabilities of the given labels, (n, K)
refitted.npy        probabilities of the clean classes of the second round, (n, K), if there was one
reports.npy         row, worker and label of each report, (m, 3), if several annotators labelled the rows
gold.npy            the code of the known label of each row, −1 if unknown, (n,), if some were known

All are arrays of numbers, which are read without pickle and checked. Their SHA-256 is in audit.json.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from peerloss._probabilities import check_probabilities
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from peerloss.audit._evidence import Evidence
    from peerloss.audit._label_audit import LabelAudit
    from peerloss.audit.folder import AuditFolder
    from peerloss.posterior.flags import FlagRule

PROBABILITIES, REFITTED, REPORTS, GOLD = "probabilities.npy", "refitted.npy", "reports.npy", "gold.npy"
FILES = (PROBABILITIES, REFITTED, REPORTS, GOLD)


def write_evidence(folder: Path, audit: LabelAudit) -> dict[str, Any]:
    """Write the arrays of an audit to a folder; return what audit.json records about them."""
    evidence = audit.evidence
    if evidence is None:
        return {}
    arrays = {PROBABILITIES: evidence.proba, REFITTED: evidence.refitted, GOLD: evidence.gold}
    if evidence.annotations is not None:
        arrays[REPORTS] = evidence.annotations.coded()
    digests = {}
    for name, array in arrays.items():
        if array is not None:
            np.save(folder / name, np.asarray(array), allow_pickle=False)
            digests[name] = _digest(folder / name)
    return {"sha256": digests, "flags": evidence.rule._asdict(), "useless": evidence.useless}


def read_evidence(folder: AuditFolder) -> Evidence:
    """Read the evidence of an audit; its classes are text, and its rows are named as in labels.csv."""
    stored = folder.manifest.get("evidence")
    if not isinstance(stored, dict) or not stored.get("sha256") or "flags" not in stored:
        raise InvalidInputError(
            f"{folder.path} does not contain everything that its audit was computed from: an earlier version "
            "wrote it. Run `peerloss audit` again."
        )
    from peerloss.posterior.flags import FlagRule  # noqa: PLC0415 - `peerloss apply` does not need it

    try:
        found = _read_evidence(folder, stored["sha256"], FlagRule.checked(**stored["flags"]))
        return replace(found, useless=str(stored.get("useless", "")))
    except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidInputError(
            f"{folder.path} is a damaged audit: {error} Run `peerloss audit` again."
        ) from error


def _read_evidence(folder: AuditFolder, digests: dict[str, str], rule: FlagRule) -> Evidence:
    # They import the estimators, which `peerloss apply` does not need.
    from peerloss.audit._annotations import Annotations  # noqa: PLC0415
    from peerloss.audit._evidence import Evidence  # noqa: PLC0415

    labels, classes = folder.labels, np.array(folder.classes, dtype=object)
    n, k = len(labels), len(classes)
    codes = np.asarray(pd.Index(classes).get_indexer(labels["given"]), dtype=np.int64)
    if (codes < 0).any():
        unknown = labels["given"].iloc[int(np.argmin(codes))]
        raise InvalidInputError(f"the given label {unknown!r} is not among the classes.")
    arrays = {name: _read(folder.path / name, digests[name]) for name in FILES if name in digests}
    proba, refitted = (
        None if name not in arrays else check_probabilities(arrays[name], n, k, name=name)
        for name in (PROBABILITIES, REFITTED)
    )
    gold, coded = arrays.get(GOLD), arrays.get(REPORTS)
    if gold is not None and not (gold.shape == (n,) and _are_codes(gold, -1, k)):
        raise InvalidInputError(f"{GOLD} must hold one code per row.")
    if coded is not None and not (
        coded.ndim == 2
        and coded.shape[1] == 3
        and _are_codes(coded[:, 0], 0, n)
        and _are_codes(coded[:, 1], 0, len(coded))
        and _are_codes(coded[:, 2], 0, k)
        and len(np.unique(coded[:, 0])) == n
    ):
        raise InvalidInputError(f"{REPORTS} must hold row, worker and label of the reports on every row.")
    names = pd.Index(labels["name"])
    given = pd.Series(pd.Categorical.from_codes(codes, categories=pd.Index(classes)), index=names)
    annotations = None if coded is None else Annotations.from_codes(coded, given)
    if proba is None and annotations is None:
        raise InvalidInputError("it has neither probabilities nor reports.")
    return Evidence(given, classes, codes, proba, annotations, gold, refitted, rule)


def _read(path: Path, digest: str) -> NDArray[Any]:
    if _digest(path) != digest:
        raise InvalidInputError(f"{path.name} was changed since the audit.")
    # A memory map refuses a header that promises more numbers than the file has.
    return np.array(np.load(path, mmap_mode="r", allow_pickle=False))


def _are_codes(values: NDArray[Any], low: int, end: int) -> bool:
    return bool(values.dtype.kind in "iu" and ((values >= low) & (values < end)).all())


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
