"""Helpers for tests that write folders."""


def names(folder):
    """Return the sorted names in a folder, including hidden ones."""
    return sorted(path.name for path in folder.iterdir())


def make_folder(path, *files):
    """Make a folder with files that contain their own name."""
    path.mkdir(parents=True)
    for name in files:
        (path / name).write_text(name)
    return path
