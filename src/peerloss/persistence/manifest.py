"""The manifest of a model folder, and its files as bytes.

Nothing here needs scikit-learn or torch, so a wrong path is reported at once.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peerloss._files import restore_folder
from peerloss.exceptions import ModelFolderError

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMAT = "peerloss model"
FORMAT_VERSION = 1
MANIFEST, STATE, ARRAYS, PARTS = "manifest.json", "state.json", "arrays.safetensors", "parts.skops"


def read_manifest(folder: str | Path) -> dict[str, Any]:
    """Return the manifest of a model folder: class, classes, names of the features, versions, files.

    Parameters
    ----------
    folder
        A model folder.
    """
    home = Path(folder)
    restore_folder(home)
    if not home.is_dir():
        what = "is a file" if home.exists() else "does not exist"
        raise ModelFolderError(f"{home} {what}; expected a model folder written by save_model.")
    try:
        manifest = json.loads(_read_regular(home / MANIFEST))
    except FileNotFoundError as error:
        raise ModelFolderError(
            f"{home} is not a model folder: it has no {MANIFEST}. Pass a folder written by save_model or "
            "`peerloss fit`."
        ) from error
    except (OSError, ValueError, RecursionError) as error:
        raise ModelFolderError(f"{home}: {MANIFEST} is damaged: {error}. Save the model again.") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ModelFolderError(f"{home} is not a model folder: {MANIFEST} belongs to another format.")
    version = manifest.get("format_version")
    if not isinstance(version, int) or not isinstance(manifest.get("files"), dict):
        raise ModelFolderError(f"{home}: {MANIFEST} is damaged. Save the model again.")
    if version > FORMAT_VERSION:
        raise ModelFolderError(
            f"{home} was written by a newer peerloss: format {version}, but this version "
            f"reads formats up to {FORMAT_VERSION}. Install a newer version of peerloss; in a clone: "
            "git pull, then pip install --upgrade ."
        )
    return manifest


def read_files(home: Path, listed: Mapping[str, Any]) -> dict[str, bytes]:
    """Read each file once and compare it with its hash."""
    files = {}
    for name, digest in listed.items():
        if Path(name).name != name:
            raise ModelFolderError(f"{home}: {MANIFEST} names {name!r}, which is outside the folder.")
        try:
            files[name] = _read_regular(home / name)
        except (OSError, ValueError) as error:
            raise ModelFolderError(
                f"{home}: {name} cannot be read: {error}. Copy the folder again."
            ) from error
        if hashlib.sha256(files[name]).hexdigest() != digest:
            raise ModelFolderError(
                f"{home}: {name} was changed (its SHA-256 is not the one in {MANIFEST}). Copy the folder "
                "again, or save the model again."
            )
    for name in (STATE, ARRAYS):
        if name not in files:
            raise ModelFolderError(f"{home}: {MANIFEST} does not list {name}. Save the model again.")
    return files


def _read_regular(path: Path) -> bytes:
    """Read a regular file; a device or a pipe may never end."""
    if path.exists() and not path.is_file():
        raise OSError("it is not a regular file")
    return path.read_bytes()


def check_replaceable(target: Path) -> None:
    """Raise an error unless ``target`` is free, an empty folder, or a model folder without other files."""
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return
    advice = "Choose another folder, or remove this one yourself."
    try:
        manifest = json.loads((target / MANIFEST).read_text(encoding="utf-8"))
        known, is_model = {MANIFEST, *manifest["files"]}, manifest["format"] == FORMAT
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        is_model = False
    if not is_model:
        raise ModelFolderError(f"{target} exists and is not a model folder; it was not changed. {advice}")
    others = sorted(path.name for path in target.iterdir() if path.name not in known)
    if others:
        raise ModelFolderError(
            f"{target} contains more than a model ({', '.join(others[:5])}); it was not changed. {advice}"
        )
