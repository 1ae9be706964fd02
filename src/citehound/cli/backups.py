"""`citehound backup` and `citehound restore`: the state of a configuration as one file, and back."""

from __future__ import annotations

from pathlib import Path

import click

from . import output
from .commands import config_option, json_option, load


@click.command()
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
@json_option
@config_option
def backup(file: Path, as_json: bool, config_path: Path | None) -> None:
    """Write index, runs and tokens to one FILE.

    Questions and an index run may go on meanwhile. The documents themselves and
    citehound.toml are not in it.
    """
    from ..backup import backup as make

    made = make(load(config_path), file)
    if as_json:
        output.out_json({"file": str(file), "files": len(made.files), "bytes": file.stat().st_size})
    else:
        output.out(f"{file}: {len(made.files)} files, {file.stat().st_size / 1e6:.1f} MB")


@click.command()
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
@click.option("--force", is_flag=True, help="Replace the state that is there; it is kept beside the new one.")
@json_option
@config_option
def restore(file: Path, force: bool, as_json: bool, config_path: Path | None) -> None:
    """Put back what `citehound backup` wrote.

    The archive is checked, and the index made ready, before anything is moved.
    """
    from ..backup import restore as put_back

    config = load(config_path)
    output.err("checking the backup and making the index of its words ...")
    found, kept = put_back(config, file, force=force)
    if as_json:
        output.out_json(
            {"files": len(found.files), "version": found.version, "kept": None if kept is None else str(kept)}
        )
        return
    output.out(f"restored {len(found.files)} files, made by Citehound {found.version}")
    if kept is not None:
        output.out(f"what was there is in {kept}; delete it when all is well")
    output.err("'citehound index' brings in what has changed since")
