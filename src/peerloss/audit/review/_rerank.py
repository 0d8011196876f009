"""Rank the rows of an audit again with the decisions of its review, without training."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from peerloss._files import atomic_folder
from peerloss.audit._audit_page import PageContext
from peerloss.audit._contradictions import Contradictions
from peerloss.audit._issues import make_audit
from peerloss.audit._stored_evidence import read_evidence
from peerloss.audit.folder import MANIFEST, write_results
from peerloss.audit.review._decisions_file import DecisionsFile, checked_latest
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    import pandas as pd

    from peerloss._validation import IntArray
    from peerloss.audit._label_audit import LabelAudit
    from peerloss.audit.folder import AuditFolder
    from peerloss.audit.review._decisions_file import Decision


def gold_from_decisions(folder: AuditFolder, decisions: list[Decision]) -> dict[int, str]:
    """Return the labels that decisions make known, by row: the given one if kept, else the new one.

    Skipped rows are not among them.

    Raises
    ------
    InvalidInputError
        If a decision does not belong to the audit.
    """
    given = dict(zip(folder.labels["row"].tolist(), folder.labels["given"].tolist(), strict=True))
    known = checked_latest(decisions, set(given), set(folder.classes), folder.decisions_path)
    gold = {row: given[row] for row, decision in known.items() if decision.action == "keep"}
    return gold | {row: decision.label for row, decision in known.items() if decision.label is not None}


def rerank(folder: AuditFolder) -> tuple[LabelAudit, int]:
    """Compute the audit of a folder again with its decisions, and write it to the folder.

    Decided rows have ``p_error`` 0 or 1 and gain 0. They also inform the estimated noise, so that the other
    rows are ranked again. Training is not repeated. If the audit learned from something else than columns of
    the table, such as features of images, suspects keep the similar rows that were found then. Labels, page
    and summary are replaced, completely or not at all; data and decisions stay.

    Returns
    -------
    The new audit, whose labels are text, and the number of rows with a known label.

    Raises
    ------
    InvalidInputError
        If the folder does not contain the numbers behind the audit, if there are no decisions, or if a review
        of the folder is running.
    """
    evidence = read_evidence(folder)
    rows = folder.labels["row"].to_numpy()
    with DecisionsFile(folder.decisions_path) as file:
        gold = gold_from_decisions(folder, file.decisions)
        if not gold:
            kind = "that keep or change a label" if file.decisions else "yet"
            raise InvalidInputError(
                f"{folder.path} has no decisions {kind}, so the ranking would not change. Decide on some "
                "suspects with `peerloss review` first."
            )
        known = np.array([gold.get(row) for row in rows.tolist()], dtype=object)
        evidence = evidence.with_gold(known)
        features = folder.features()
        folder.check_rows(rows, len(features))
        used, shown = _used_and_shown(folder, features.iloc[rows])
        audit = replace(make_audit(evidence, evidence.posterior(), used), shown=shown)
        if used is None:  # what was found in the features does not depend on decisions
            audit = replace(audit, contradictions=_stored_contradictions(folder))
            _keep_neighbours(audit, folder, rows, len(features))
        described = str(folder.manifest.get("table", {}).get("text", ""))
        context = PageContext(str(folder.path), rows, folder.row_numbers, folder.pictures(), described)
        with atomic_folder(folder.path) as fresh:
            for path in folder.path.iterdir():
                if path.is_dir():
                    shutil.copytree(path, fresh / path.name, symlinks=True)
                else:
                    shutil.copyfile(path, fresh / path.name, follow_symlinks=False)
            manifest = folder.manifest | {"decisions": len(gold)}
            source = folder.manifest.get("source", folder.path.name)
            write_results(fresh, audit, manifest, context=context, title=f"Labels of {source}")
    return audit, len(gold)


def _used_and_shown(
    folder: AuditFolder, table: pd.DataFrame
) -> tuple[pd.DataFrame | None, pd.DataFrame | None]:
    """Return the columns that the audit learned from, and those that its page shows instead.

    The first are ``None`` if the audit learned from something else; ``table`` has all columns but the labels.
    """
    if "features" not in folder.manifest:  # an earlier version: all columns but the names of the rows
        names = folder.labels["name"].to_numpy()
        kept = [not (table[name].astype(str).to_numpy() == names).all() for name in table]
        return table.loc[:, kept], None

    def of_table(names: list[str] | None) -> pd.DataFrame | None:
        return None if names is None or not set(names) <= set(table.columns) else table[names]

    return of_table(folder.manifest["features"]), of_table(folder.manifest.get("shown"))


def _stored_contradictions(folder: AuditFolder) -> Contradictions | None:
    """Return the contradictions of the first audit; ``None`` if it had no features to compare."""
    stored = folder.manifest["summary"].get("contradictions")
    try:
        return None if stored is None else Contradictions.from_summary(stored)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise InvalidInputError(
            f"{folder.path}: the contradictions in {MANIFEST} are damaged ({error!r}). Run `peerloss audit` "
            "again."
        ) from error


def _keep_neighbours(audit: LabelAudit, folder: AuditFolder, rows: IntArray, n_rows: int) -> None:
    """Copy similar rows from the folder to the explanations of an audit without features."""
    found, stored = audit.explanations, folder.explanations(n_rows)
    place = {row: place for place, row in enumerate(rows.tolist())}
    same = audit.table["suggested"].astype(str).to_numpy() == folder.labels["suggested"].to_numpy()
    for number, suspect in enumerate(found.suspects.tolist()):
        why = stored.get(int(rows[suspect]))
        if why is None:
            continue
        examples = why.suggested_examples if same[suspect] else []
        for kept, positions in (
            (found.nearest, why.nearest),
            (found.given_examples, why.given_examples),
            (found.suggested_examples, examples),
        ):
            known = [place[row] for row in positions if row in place][: kept.shape[1]]
            kept[number, : len(known)] = known
