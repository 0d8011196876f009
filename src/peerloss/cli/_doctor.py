"""``peerloss doctor``: which features work on this machine, and what to install for the others."""

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
    """Show versions, devices and data, which features work, and what to install for the others.

    The exit code is 1 if the core does not work. Missing optional packages do not change it.

    Example: peerloss doctor
    """
    from peerloss.cli._environment import core_problems, data_parts, devices, features, versions

    problems = core_problems()
    machine = devices()
    folder = os.environ.get("PEERLOSS_DATA") or None
    facts: dict[str, Any] = {
        "core": {"works": not problems, "problems": problems},
        "versions": versions(),
        "devices": machine,
        "data": {"PEERLOSS_DATA": folder, "parts": {} if problems else data_parts(folder)},
    }
    found = features(machine["cuda"])
    if as_json:
        facts["features"] = [asdict(feature) for feature in found]
        say_json(facts)
    else:
        _print(facts, found)
    if problems:
        raise typer.Exit(code=1)


def _print(facts: dict[str, Any], found: list[Feature]) -> None:
    present = [f"{name} {version}" for name, version in facts["versions"].items() if version is not None]
    _section("Versions", [", ".join(present)])
    _section("Devices", _device_lines(facts["devices"]))
    _section("Data", _data_lines(facts["data"]))
    works = [f"{f.name:10} {f.works:7} {f.what}" + (f"\n{'':21}{f.todo}" if f.todo else "") for f in found]
    _section("Features", works)
    problems = facts["core"]["problems"]
    _section("Problems with the core", problems)
    missing = [feature.name for feature in found if feature.works != "yes"]
    core = "The core works" if not problems else "The core does NOT work"
    typer.echo(f"{core}. Features not fully available: {', '.join(missing) or 'none'}.")


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
    lines = [f"PEERLOSS_DATA: {folder or 'not set; set it to the folder of data that is not in the package'}"]
    for name, part in data["parts"].items():
        if part["found"] or folder:
            lines.append(f"{name:18} {'found' if part['found'] else 'not found'}: {part['note']}")
    return lines
