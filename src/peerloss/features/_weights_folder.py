"""Folders of pretrained weights: checked before they are loaded, or downloaded by name.

Only safetensors files are read. Other formats of weights are pickles or may contain code.
"""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from peerloss._installing import install_command
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterator

#: What is downloaded of a model on Hugging Face: weights without pickle, settings and vocabularies.
DOWNLOADED = ("*.safetensors", "*.json", "*.txt", "*.model", "*.tiktoken")
#: Endings of weights that are not read, in the order of messages.
REFUSED = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".h5", ".msgpack", ".onnx", ".gguf")
#: Files of which a tokenizer needs one.
VOCABULARIES = ("tokenizer.json", "vocab*", "*.model", "*.tiktoken")
_NAME = re.compile(r"[\w][\w.-]*(/[\w][\w.-]*)?")
#: Most bytes of a JSON file of settings.
MAX_SETTINGS = 2**24


def find_weights(model: str | Path) -> Path:
    """Return the folder of a model that was given by folder or by name; a name is downloaded."""
    folder = Path(model).expanduser()
    if folder.is_dir():
        return _checked(folder)
    name = str(model)
    if isinstance(model, Path) or folder.exists() or not _NAME.fullmatch(name):
        what = "it is a file" if folder.exists() else "it does not exist"
        raise InvalidInputError(
            f"`model` must be a folder with safetensors files, or the name of a model; got {name!r}: {what}."
        )
    return _checked(_downloaded(name))


def _downloaded(name: str) -> Path:
    hub = import_optional("huggingface_hub")
    try:
        return Path(hub.snapshot_download(name, allow_patterns=list(DOWNLOADED)))
    except Exception as error:  # the hub raises errors of many types
        raise InvalidInputError(
            f"`model` {name!r} is not a folder, and could not be downloaded from Hugging Face: "
            f"{first_line(error)} Check the name, or download the model elsewhere and pass its folder."
        ) from error


def _checked(folder: Path) -> Path:
    if any(folder.glob("*.safetensors")) or (folder / "modules.json").is_file():
        return folder
    found = sorted(p.name for p in folder.iterdir() if p.suffix.lower() in REFUSED) if folder.is_dir() else []
    has = f"it has {', '.join(found[:3])}, which may contain code" if found else "it has none"
    raise InvalidInputError(
        f"`model` {str(folder)!r} must be a folder with weights in *.safetensors; {has}. Save the model with "
        "model.save_pretrained(folder, safe_serialization=True), or convert the file with "
        "safetensors.torch.save_file."
    )


def read_settings(path: Path, *, required: bool = True) -> dict[str, Any]:
    """Read a JSON object; without ``required``, a missing file is an empty one."""
    if not required and not path.is_file():
        return {}
    try:
        with path.open("rb") as stream:
            content = json.loads(stream.read(MAX_SETTINGS))  # a longer file is not complete
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidInputError(
            f"`model`: {path} is not a readable JSON file ({first_line(error)}) Save or download the model "
            "again."
        ) from error
    if not isinstance(content, dict):
        raise InvalidInputError(f"`model`: {path} must contain a JSON object; got {type(content).__name__}.")
    return content


def load_transformer(folder: Path) -> Any:
    """Return the model of a Hugging Face folder, on the CPU, without its head.

    Nothing is downloaded, code in the folder is not run, and every weight must be in the folder.
    """
    transformers = import_optional("transformers")
    read_settings(folder / "config.json")
    try:
        with _quiet(transformers):
            model, loaded = transformers.AutoModel.from_pretrained(
                str(folder),
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
                output_loading_info=True,
            )
    except Exception as error:  # damaged files and unknown architectures raise errors of many types
        raise InvalidInputError(
            f"`model` {str(folder)!r} could not be loaded: {first_line(error)} Check that it is a complete "
            "folder of a Hugging Face model that the installed version of transformers supports."
        ) from error
    # The pooler is not used. Other missing weights would be random numbers.
    missing = sorted(key for key in loaded["missing_keys"] if "pooler" not in key)
    missing += sorted(str(key) for key in loaded["mismatched_keys"])
    if missing:
        raise InvalidInputError(
            f"`model` {str(folder)!r} lacks {len(missing)} of its weights, such as {missing[0]}. Save or "
            "download the model again."
        )
    return model.float().eval()


def load_tokenizer(folder: Path) -> Any:
    """Return the tokenizer of a Hugging Face folder, without a network and without running its code."""
    transformers = import_optional("transformers")
    try:
        if not any(
            any(folder.glob(pattern)) for pattern in VOCABULARIES
        ):  # it would be made without any word
            raise OSError("it has no vocabulary")  # noqa: TRY301 - reported below
        with _quiet(transformers):
            found = transformers.AutoTokenizer.from_pretrained(
                str(folder), local_files_only=True, trust_remote_code=False
            )
    except Exception as error:  # as above
        raise InvalidInputError(
            f"`model` {str(folder)!r} has no tokenizer that can be loaded: {first_line(error)} A model of "
            "texts needs its tokenizer files, such as tokenizer.json."
        ) from error
    if found.pad_token is None:
        found.pad_token = found.eos_token or found.unk_token
    return found


def import_optional(module: str, install: str | None = None) -> Any:
    """Import an optional package: one of the extra ``hf``, or the package ``install``."""
    try:
        return import_module(module)
    except ImportError as error:
        raise InvalidInputError(
            f"`model` needs {module}, which cannot be imported ({error}). Install it: "
            + (f"pip install {install}" if install else install_command("hf"))
        ) from error


def first_line(error: BaseException) -> str:
    """Return the first line of a message, as a sentence."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:300].rstrip(".: ") + "."


def as_features(output: Any) -> torch.Tensor:
    """Return the tensor of a model's output: itself, or its pooled part."""
    found = output if isinstance(output, torch.Tensor) else output.pooler_output
    if not isinstance(found, torch.Tensor):
        raise TypeError("no features in the output")
    return found


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """Hide progress bars and warnings of transformers; errors are raised."""
    log = transformers.utils.logging
    level, has_bar = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity_error()
    log.disable_progress_bar()
    try:
        yield
    finally:
        log.set_verbosity(level)
        if has_bar:
            log.enable_progress_bar()
