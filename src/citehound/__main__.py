"""`python -m citehound`: the same as the `citehound` script."""

from __future__ import annotations

from .cli import main

if __name__ == "__main__":
    main(prog_name="citehound")
