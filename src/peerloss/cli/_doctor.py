"""``peerloss doctor``: what works here, and what to install for the rest."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from peerloss.cli._terminal import say_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from peerloss.cli._environment import Feature


def doctor(*, as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False) -> None:
    """Tell versions, devices and data found here, and for each feature what to install if it lacks anything.

    The exit code is 1 if the core cannot work, else 0: optional packages may be missing.

    Example: peerloss doctor
    """
    from peerloss.cli._environment import core_problems, data_parts, devices, features, versions

    problems = core_problems()
    machine = devices()
    folder = os.environ.get("PEERLOSS_DATA") or None
    told: dict[str, Any] = {
        "core": {"works": not problems, "problems": problems},
        "versions": versions(),
        "devices": machine,
        "data": {"PEERLOSS_DATA": folder, "parts": {} if problems else data_parts(folder)},
    }
    found = features(machine["cuda"])
    if as_json:
        told["features"] = [asdict(feature) for feature in found]
        say_json(told)
    else:
        _print(told, found)
    if problems:
        raise typer.Exit(code=1)


def _print(told: dict[str, Any], found: list[Feature]) -> None:
    present = [f"{name} {version}" for name, version in told["versions"].items() if version is not None]
    _section("Versions", [", ".join(present)])
    _section("Devices", _device_lines(told["devices"]))
    _section("Data", _data_lines(told["data"]))
    works = [f"{f.name:10} {f.works:7} {f.what}" + (f"\n{'':21}{f.todo}" if f.todo else "") for f in found]
    _section("Features", works)
    problems = told["core"]["problems"]
    _section("Problems of the core", problems)
    missing = [feature.name for feature in found if feature.works != "yes"]
    core = "The core works" if not problems else "The core does NOT work"
    typer.echo(f"{core}; not or not wholly there: {', '.join(missing) or 'nothing'}.")


def _section(title: str, lines: Iterable[str]) -> None:
    lines = list(lines)
    if lines:
        typer.echo(f"{title}\n" + "\n".join(f"  {line}" for line in lines) + "\n")


def _device_lines(machine: dict[str, Any]) -> list[str]:
    memory = "memory unknown" if machine["memory_gib"] is None else f"{machine['memory_gib']} GiB of memory"
    lines = [f"{machine['system']}, {machine['cores']} cores, {memory}"]
    for card in machine["cuda"]:
        bf16 = "bf16" if card["bf16"] else "no bf16"
        lines.append(f"GPU: {card['name']}, {card['memory_gib']} GiB, {bf16}")
    if machine["mps"]:
        lines.append("Apple GPU (MPS): for your own torch loops; the estimators train on the CPU")
    return lines


def _data_lines(data: dict[str, Any]) -> list[str]:
    folder = data["PEERLOSS_DATA"]
    lines = [f"PEERLOSS_DATA: {folder or 'not set; it names the folder of data that is not in the package'}"]
    for name, part in data["parts"].items():
        if part["found"] or folder:
            lines.append(f"{name:18} {'found' if part['found'] else 'not found'}: {part['note']}")
    return lines
