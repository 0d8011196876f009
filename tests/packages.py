"""The public packages of the library, found rather than listed, so that no test forgets a new one."""

import pkgutil

import peerloss

PACKAGES = tuple(
    module.name
    for module in pkgutil.iter_modules(peerloss.__path__)
    if module.ispkg and not module.name.startswith("_") and module.name != "cli"
)
