"""`msdc push`: upload a model or bundle folder to the Hugging Face hub."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from huggingface_hub import HfApi
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalTokenNotFoundError
from huggingface_hub.utils import filter_repo_objects

from msdc.commands import json_option, quiet_option
from msdc.errors import InputError, MsdcError

# Files that a repository must not contain.
IGNORED = [".*", "**/.*", "*.partial", "**/*.partial", "checkpoints/**", "snapshot/**"]


def pushable(folder: Path) -> Path:
    """The folder to upload: a model or a bundle; of a run its finished student."""
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder")
    if (folder / "student" / "config.json").is_file() and (folder / "recipe.yaml").is_file():
        folder = folder / "student"
    if not any((folder / name).is_file() for name in ("bundle.json", "config.json", "modules.json")):
        raise InputError(f"{folder}: neither a model nor a bundle (no config.json, modules.json or bundle.json)")
    if not (folder / "README.md").is_file():
        raise InputError(f"{folder}: no README.md, which the hub shows as the model card")
    return folder


def planned(folder: Path) -> dict[str, int]:
    """Files that would be uploaded, with their bytes."""
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return {name: (folder / name).stat().st_size for name in filter_repo_objects(names, ignore_patterns=IGNORED)}


def push(folder: Path, hub_id: str, *, private: bool = False) -> str:
    """Create the repository if it does not exist and upload the folder as one commit; returns the commit's address.

    Raises:
        InputError: no login, or a name that the hub refuses.
        MsdcError: the hub cannot be reached, or it refuses the upload.
    """
    api: Any = HfApi()
    message = f"Upload {folder.resolve().name} with msdc"
    try:
        api.create_repo(hub_id, private=private, exist_ok=True)
        done = api.upload_folder(repo_id=hub_id, folder_path=folder, commit_message=message, ignore_patterns=IGNORED)
    except HFValidationError as error:
        raise InputError(f"{hub_id}: {error}") from error
    except LocalTokenNotFoundError as error:
        raise InputError("not logged in to the hub: run `hf auth login`, or set HF_TOKEN") from error
    except HfHubHTTPError as error:
        status = error.response.status_code if error.response is not None else 0
        if status in (401, 403):
            remedy = "run `hf auth login` or set HF_TOKEN to a token with write permission"
            raise InputError(f"{hub_id}: the hub refuses ({status}): {remedy}") from error
        raise MsdcError(f"{hub_id}: the hub refuses: {' '.join(str(error).split())[:200]}") from error
    except Exception as error:
        # Also errors of the library's transport.
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise MsdcError(f"{hub_id}: the hub cannot be reached ({reason})") from error
    return str(done.commit_url)


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("hub_id", metavar="OWNER/NAME")
@click.option("--private", is_flag=True, help="Create a private repository.")
@click.option("--dry-run", "dry", is_flag=True, help="List the files; upload nothing.")
@json_option
@quiet_option
def command(folder: Path, hub_id: str, private: bool, dry: bool, as_json: bool) -> None:
    """Upload FOLDER to the Hugging Face hub as OWNER/NAME: a model, a bundle, or the student of a run.

    Log in with `hf auth login` or set the environment variable HF_TOKEN.
    """
    source = pushable(folder)
    if not dry:
        address = push(source, hub_id, private=private)
        click.echo(json.dumps({"repository": hub_id, "commit": address}) if as_json else address)
    elif as_json:
        click.echo(json.dumps({"repository": hub_id, "files": planned(source)}))
    else:
        for name, size in planned(source).items():
            click.echo(f"{size:>14,}  {name}")
