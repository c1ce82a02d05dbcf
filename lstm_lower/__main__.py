"""`python -m lstm_lower`: the command line."""

from __future__ import annotations

from lstm_lower.cli.main import app

if __name__ == "__main__":
    app(prog_name="lstm-lower")
