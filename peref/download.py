"""Fetches a corpus of the catalogue: into a `.part` file that a later try continues, verified, then moved into place at once.

What arrives is trusted only after its size and SHA-256 are the catalogue's. Not here: loading what was fetched (data.py).
"""

import os
from collections.abc import Callable, Mapping
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from peref import share
from peref.data import Entry, catalogue, verified
from peref.errors import Damaged, Misuse, PerefError, did_you_mean, explained

CHUNK = 1 << 16  # bytes read at a time
TRIES = 5  # requests for one file; each but the first only because the one before it brought something

Progress = Callable[[int, int], None]


def get(
    name: str,
    *,
    progress: Progress = lambda done, total: None,
    entries: Mapping[str, Entry] | None = None,
    store: Path | None = None,
    timeout: float = 30.0,
) -> Path:
    """Where corpus `name` now is, fetched unless it was there and whole.

    progress(done, total) is called in bytes as they arrive; `entries` stands for the catalogue, `store` for the folder to fetch into;
    `timeout` is in seconds of silence. Raises Misuse for an unknown name, Damaged where what the address serves is not what the catalogue
    says, PerefError where the address cannot be reached, the transfer breaks off (what arrived is kept) or the folder cannot be written.
    """
    entries = catalogue() if entries is None else entries
    if name not in entries:
        near = did_you_mean(name, entries, f"known: {', '.join(entries)}")
        raise Misuse(f"no corpus {name!r} can be fetched{near}")
    entry = entries[name]
    target = (store or share.downloads()) / entry.file
    if whole(entry, target):
        return target
    part = target.with_name(target.name + ".part")
    with explained(part, "write"):
        target.parent.mkdir(parents=True, exist_ok=True)
        if size(part) > entry.bytes:
            part.unlink()
    transfer(entry, part, progress, timeout)
    try:
        verified(entry, part)
    except Damaged as error:
        part.unlink()
        raise Damaged(f"what {entry.address} sent was deleted: {error}") from error
    with explained(part, f"move to {target}"):
        os.replace(part, target)
    return target


def present(*, entries: Mapping[str, Entry] | None = None, store: Path | None = None) -> list[dict[str, object]]:
    """The catalogue, one dict per corpus: name, bytes, licence, citation, address, sha256, path (text; None unless here and whole)."""
    entries = catalogue() if entries is None else entries
    folder = store or share.downloads()
    return [
        {
            "name": entry.name,
            "bytes": entry.bytes,
            "licence": entry.licence,
            "citation": entry.citation,
            "address": entry.address,
            "sha256": entry.sha256,
            "path": str(folder / entry.file) if whole(entry, folder / entry.file) else None,
        }
        for entry in entries.values()
    ]


def whole(entry: Entry, path: Path) -> bool:
    """Whether `path` is the file that the catalogue describes."""
    try:
        return path.is_file() and bool(verified(entry, path))
    except Damaged:
        return False


def transfer(entry: Entry, part: Path, progress: Progress, timeout: float) -> None:
    """Brings `part` to the declared size, asking again for the rest as long as every try brings some of it."""
    for _ in range(TRIES):
        before = size(part)
        if before == entry.bytes:
            return
        why = "the transfer broke off"
        try:
            request(entry, part, progress, timeout)
        except HTTPError as error:
            error.close()
            if error.code != 416 or not before:
                raise PerefError(f"{entry.address} answered {error.code} {error.reason}; {by_hand(part)}") from error
            part.unlink()  # 416: the server has nothing beyond what is here, yet that is too little: begin anew
            continue
        except (OSError, HTTPException) as error:
            why = str(error) or type(error).__name__
        if size(part) <= before:
            break
    have = size(part)
    if have < entry.bytes:
        raise PerefError(f"could not fetch {entry.address} ({why}): {have} of {entry.bytes} bytes are here; {by_hand(part)}")


def request(entry: Entry, part: Path, progress: Progress, timeout: float) -> None:
    """One request for what `part` lacks; what arrives is on disk when this returns or raises, and is never more than the declared size."""
    have = size(part)
    headers = {"User-Agent": "peref", "Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    with urlopen(Request(entry.address, headers=headers), timeout=timeout) as reply:
        if not continues(reply, have):
            have = 0  # no Range there: the whole file comes again
        length = reply.headers.get("Content-Length", "")
        if length.isdigit() and have + int(length) != entry.bytes:
            raise Damaged(f"{entry.address} is not corpus {entry.name!r}: expected {entry.bytes} bytes, it offers {have + int(length)}")
        with part.open("ab" if have else "wb") as file:
            try:
                progress(have, entry.bytes)
                while have < entry.bytes and (piece := reply.read(min(CHUNK, entry.bytes - have))):
                    file.write(piece)
                    have += len(piece)
                    progress(have, entry.bytes)
            finally:
                file.flush()
                os.fsync(file.fileno())
        if have == entry.bytes and reply.read(1):
            part.unlink()
            raise Damaged(f"{entry.address} is not corpus {entry.name!r}: expected {entry.bytes} bytes, it sends more")


def continues(reply: HTTPResponse, have: int) -> bool:
    """Whether the reply goes on from byte `have`."""
    return reply.status == 206 and reply.headers.get("Content-Range", "").startswith(f"bytes {have}-")


def size(path: Path) -> int:
    """Of a file, in bytes; 0 where there is none."""
    return path.stat().st_size if path.exists() else 0


def by_hand(part: Path) -> str:
    """What to do when fetching fails."""
    return (
        f"check the connection and run the same command again (it continues), or put the file at {part.with_suffix('')} yourself, "
        "or choose another text with --data"
    )
