"""Weight files from the Hub, gone on with where an earlier run broke off.

The Hub's client drops what it has of a file when its process ends, which for gigabytes is no
resuming. Here the part stays beside the place where the client keeps whole files; the client then
finds them there.
"""

import fcntl
import os
from pathlib import Path

from playhead.engine.models.hashes import SHA256

PART = ".playhead-part"
"""Behind the name of a file that is not whole yet."""


def fetch_weights(name: str, revision: str | None, token: str | None) -> None:
    """Bring a repository's weight files into the Hub's cache; whole ones cost no download.

    Does nothing where the Hub can't be asked: what was fetched before may do. Raises the errors
    of the Hub's client when a download breaks; the next call goes on from there.
    """
    from httpx import HTTPError
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    try:
        found = HfApi().model_info(name, revision=revision, token=token)
    except (HfHubHTTPError, HTTPError, OSError):
        return
    for sibling in found.siblings or ():
        if sibling.rfilename.endswith(".safetensors"):
            _fetch(name, sibling.rfilename, found.sha, token)


def _fetch(name: str, file: str, commit: str | None, token: str | None) -> None:
    from huggingface_hub import get_hf_file_metadata, hf_hub_url
    from huggingface_hub.constants import HF_HUB_CACHE
    from huggingface_hub.file_download import http_get, repo_folder_name
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

    url = hf_hub_url(name, file, revision=commit)
    about = get_hf_file_metadata(url, token=token)
    if about.size is None or about.etag is None or not SHA256.fullmatch(about.etag):
        return  # a file the Hub keeps another way: its client fetches it
    folder = Path(HF_HUB_CACHE) / repo_folder_name(repo_id=name, repo_type="model") / "blobs"
    whole, part = folder / about.etag, folder / f"{about.etag}{PART}"
    if whole.exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    with part.open("ab") as out:
        fcntl.flock(out, fcntl.LOCK_EX)  # another process may be at the same file
        if whole.exists():
            part.unlink(missing_ok=True)
            return
        held_bytes = min(out.seek(0, os.SEEK_END), about.size)
        out.truncate(held_bytes)
        http_get(
            url, out, resume_size=held_bytes, headers=build_hf_headers(token=token),
            expected_size=about.size, displayed_filename=file,
        )  # fmt: skip
        out.flush()
        os.replace(part, whole)
