"""``python -m peerloss``."""

from peerloss.cli import app

if __name__ == "__main__":
    app()
