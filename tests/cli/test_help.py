"""The help of every command, and shell completion."""

import os
import re
import subprocess
import sys

import click
import pytest
import typer.main
from typer.testing import CliRunner

from peerloss.cli import COMMANDS, app

GROUP = typer.main.get_command(app)


def help_of(*command):
    done = CliRunner().invoke(app, [*command, "--help"], terminal_width=200)
    assert done.exit_code == 0
    return done.stdout


def complete(shell, words, **more):
    environment = {**os.environ, "_PEERLOSS_COMPLETE": f"complete_{shell}", **more}
    environment |= {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" ")), "_TYPER_COMPLETE_ARGS": words}
    command = [sys.executable, "-c", "from peerloss.cli import app; app(prog_name='peerloss')"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stdout


def test_the_list_of_commands_is_not_truncated():
    """Every command has one complete line in the list."""
    printed = CliRunner().invoke(app, ["--help"], terminal_width=80).stdout
    for command, line in COMMANDS.items():
        assert re.search(rf"^  {command.__name__} +{re.escape(line)}$", printed, re.MULTILINE)
    assert "..." not in printed.split("Commands:")[1]


@pytest.mark.parametrize("name", GROUP.commands)
def test_every_command_shows_a_valid_example(name):
    """The options and arguments of the example in the help can be parsed; it is not run here."""
    text = " ".join(help_of(name).split("Arguments:")[0].split("Options:")[0].split())
    examples = re.findall(rf"peerloss {name}(?= |$)(.*?)(?=;|\. | Example|$)", text.split("Example", 1)[1])
    assert examples
    for example in examples:
        GROUP.commands[name].make_context(name, example.split())


@pytest.mark.parametrize("name", GROUP.commands)
def test_every_option_is_explained(name):
    """Options and arguments have a help text."""
    context = click.Context(GROUP.commands[name])
    records = [p.get_help_record(context) for p in GROUP.commands[name].params]
    assert all(record is not None and record[1] for record in records)


@pytest.mark.parametrize(
    ("shell", "more"), [("bash", {}), ("zsh", {}), ("fish", {"_TYPER_COMPLETE_FISH_ACTION": "get-args"})]
)
def test_the_shell_completes_commands_and_options(shell, more):
    """As `peerloss --install-completion` sets it up."""
    commands = complete(shell, "peerloss re", **more)
    assert all(name in commands for name in ("review", "reproduce", "report"))
    assert "predict" not in commands
    assert "--metric" in complete(shell, "peerloss fit --me", **more)
