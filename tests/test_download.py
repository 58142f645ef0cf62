"""Fetching a corpus, against a server on loopback that breaks off, ignores Range, lies about sizes or serves something else."""

import hashlib
import os
import socket
import threading
import time
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from peref import data, download
from peref.errors import Damaged, Misuse, PerefError

BODY = bytes(range(32, 127)) * 2500  # 237,500 bytes: several reads


class Handler(BaseHTTPRequestHandler):
    """Serves `server.body`; the other attributes of `Server` say how it misbehaves."""

    def do_GET(self):
        server = self.server
        asked = self.headers.get("Range")
        server.asked.append(asked)
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and server.ranges else 0
        if server.status:
            return self.send_error(server.status)
        if asked and server.ranges and (start >= len(server.body) or server.stale):
            return self.send_error(416)
        self.send_response(206 if asked and server.ranges else 200)
        if asked and server.ranges:
            self.send_header("Content-Range", f"bytes {start}-{len(server.body) - 1}/{len(server.body)}")
        if server.lengths:
            self.send_header("Content-Length", str(len(server.body) - start))
        self.end_headers()
        stop = min(len(server.body), start + server.breaks.pop(0)) if server.breaks else len(server.body)
        self.wfile.write(server.body[start:stop])
        if server.silence:
            time.sleep(server.silence)

    def log_message(self, *args):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = False  # server_close waits for every request, so no socket is left open
    status = 0  # answer this instead
    ranges = True  # honour Range
    stale = False  # answer 416 to every Range
    lengths = True  # send Content-Length
    silence = 0.0  # seconds before the connection is closed

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.body = BODY
        self.breaks = []  # after how many bytes the first, second, ... reply breaks off
        self.asked = []  # the Range headers seen

    def handle_error(self, request, client_address):
        pass  # a client that refuses to read on closes the connection


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def get(server, tmp_path):
    def get(name="seas", **settings):
        return download.get(name, entries=entries(server), store=tmp_path / "store", **settings)

    get.part = tmp_path / "store" / "seas.txt.part"
    get.target = tmp_path / "store" / "seas.txt"
    return get


def entries(server):
    address = f"http://127.0.0.1:{server.server_port}/seas.txt"
    return {"seas": data.Entry("seas", "seas.txt", len(BODY), hashlib.sha256(BODY).hexdigest(), address, "public domain", "nobody 1900")}


def test_a_whole_download(server, get):
    seen = []
    assert get(progress=lambda done, total: seen.append((done, total))) == get.target
    assert get.target.read_bytes() == BODY
    assert not get.part.exists()
    assert server.asked == [None]
    assert seen == sorted(seen)
    assert seen[0] == (0, len(BODY))
    assert seen[-1] == (len(BODY), len(BODY))
    assert len(seen) > 3


def test_what_is_here_and_whole_is_not_fetched_again(server, get):
    get()
    assert get() == get.target
    assert len(server.asked) == 1


def test_what_is_here_and_damaged_is_fetched_again(server, get):
    get()
    get.target.write_bytes(BODY[:-1] + b"!")
    get()
    assert get.target.read_bytes() == BODY
    assert len(server.asked) == 2


def test_a_failed_download_leaves_what_was_there(server, get):
    get.target.parent.mkdir()
    get.target.write_bytes(b"older")
    server.status = 404
    with pytest.raises(PerefError):
        get()
    server.status, server.body = 0, BODY[:-1] + b"!"
    with pytest.raises(Damaged):
        get()
    assert get.target.read_bytes() == b"older"


def test_the_bytes_are_on_disk_before_the_name_is_given(server, get, monkeypatch):
    calls = []
    sync, move = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (calls.append("fsync"), sync(fd)))
    monkeypatch.setattr(os, "replace", lambda a, b: (calls.append((a, b)), move(a, b)))
    get()
    assert calls == ["fsync", (get.part, get.target)]


def test_a_broken_transfer_goes_on_where_it_broke(server, get):
    server.breaks = [100_000, 70_000]
    get()
    assert get.target.read_bytes() == BODY
    assert server.asked == [None, "bytes=100000-", "bytes=170000-"]


def test_a_later_run_goes_on_where_the_earlier_one_gave_up(server, get):
    server.breaks = [1000] * download.TRIES
    with pytest.raises(PerefError, match=rf"http://127\.0\.0\.1:{server.server_port}.*broke off.*5000 of 237500 bytes.*same command again"):
        get()
    assert get.part.read_bytes() == BODY[:5000]
    seen = []
    get(progress=lambda done, total: seen.append(done))
    assert server.asked[-1] == "bytes=5000-"
    assert seen[0] == 5000
    assert get.target.read_bytes() == BODY


def test_without_any_progress_it_does_not_ask_again(server, get):
    server.breaks = [0] * 9
    with pytest.raises(PerefError, match="0 of 237500 bytes"):
        get()
    assert len(server.asked) == 1


def test_a_server_that_ignores_range(server, get):
    server.ranges, server.breaks = False, [100_000]
    get()
    assert get.target.read_bytes() == BODY
    assert server.asked == [None, "bytes=100000-"]


def test_a_server_that_sends_no_length(server, get):
    server.lengths, server.breaks = False, [100_000]
    get()
    assert get.target.read_bytes() == BODY


def test_a_whole_part_needs_no_request(server, get):
    get.part.parent.mkdir()
    get.part.write_bytes(BODY)
    get()
    assert get.target.read_bytes() == BODY
    assert server.asked == []


def test_a_part_that_is_too_long_begins_anew(server, get):
    get.part.parent.mkdir()
    get.part.write_bytes(BODY + b"!")
    get()
    assert get.target.read_bytes() == BODY
    assert server.asked == [None]


def test_a_range_that_the_server_has_not_begins_anew(server, get):
    get.part.parent.mkdir()
    get.part.write_bytes(BODY[:1000])
    server.stale = True
    get()
    assert get.target.read_bytes() == BODY
    assert server.asked == ["bytes=1000-", None]


def test_a_server_that_never_has_the_rest_is_given_up(server, get):
    server.body, server.lengths = BODY[:-1], False  # one byte short, and 416 to a request for it
    with pytest.raises(PerefError, match="could not fetch"):
        get()
    assert len(server.asked) <= download.TRIES
    assert not get.target.exists()


def test_a_wrong_digest_is_refused_and_deleted(server, get):
    server.body = BODY[:-1] + b"!"
    wrong, right = hashlib.sha256(server.body).hexdigest(), hashlib.sha256(BODY).hexdigest()
    with pytest.raises(Damaged, match=rf"127\.0\.0\.1.*expected 237500 bytes with SHA-256 {right}, got 237500 bytes with SHA-256 {wrong}"):
        get()
    assert not get.part.exists()
    assert not get.target.exists()


def test_a_wrong_beginning_is_caught_after_resuming(server, get):
    get.part.parent.mkdir()
    get.part.write_bytes(b"?" * 1000)
    with pytest.raises(Damaged, match="expected"):
        get()
    assert server.asked == ["bytes=1000-"]
    get()
    assert get.target.read_bytes() == BODY


@pytest.mark.parametrize("body", [BODY + b"!", BODY * 20, BODY[:-1]])
def test_a_wrong_announced_size_is_refused_before_anything_is_read(server, get, body):
    server.body = body
    seen = []
    with pytest.raises(Damaged, match=rf"expected 237500 bytes, it offers {len(body)}"):
        get(progress=lambda done, total: seen.append(done))
    assert not seen
    assert not get.target.exists()


def test_a_body_that_does_not_end_is_not_read_beyond_the_declared_size(server, get):
    server.body, server.lengths = BODY * 20, False
    seen = []
    with pytest.raises(Damaged, match="it sends more"):
        get(progress=lambda done, total: seen.append(done))
    assert max(seen) == len(BODY)
    assert not get.part.exists()
    assert not get.target.exists()


@pytest.mark.parametrize(("status", "reason"), [(404, "Not Found"), (503, "Service Unavailable"), (416, "")])
def test_an_error_of_the_server_is_named(server, get, status, reason):
    server.status = status
    with pytest.raises(PerefError, match=rf"{server.server_port}/seas\.txt answered {status} {reason}.*yourself.*--data"):
        get()
    assert len(server.asked) == 1


def test_silence_ends_with_the_timeout(server, get):
    server.breaks, server.silence = [0] * 9, 0.6
    with pytest.raises(PerefError, match="timed out"):
        get(timeout=0.2)


def test_a_refused_connection_is_named(server, get, tmp_path):
    with closing(socket.socket()) as closed:  # bound and not listening: nobody else gets this port meanwhile
        closed.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{closed.getsockname()[1]}/seas.txt"
        entry = data.Entry(**{**vars(entries(server)["seas"]), "address": address})
        with pytest.raises(PerefError, match=rf"could not fetch {address} .*refused.*0 of 237500.*seas\.txt yourself"):
            download.get("seas", entries={"seas": entry}, store=tmp_path / "store")
    assert not get.part.exists()


def test_an_interrupt_keeps_what_arrived(server, get):
    def interrupt(done, total):
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        get(progress=interrupt)
    kept = get.part.read_bytes()
    assert kept
    assert BODY.startswith(kept)
    get()
    assert get.target.read_bytes() == BODY


def test_an_unknown_name_is_refused(get):
    with pytest.raises(Misuse, match=r"no corpus 'sea' can be fetched; did you mean 'seas'[?] known: seas"):
        get("sea")


def test_a_folder_that_cannot_be_written_is_named(server, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(PerefError, match="cannot write"):
        download.get("seas", entries=entries(server), store=tmp_path / "file" / "store")


def test_present_lists_the_catalogue_and_what_is_here(server, get, tmp_path):
    def path():
        (row,) = download.present(entries=entries(server), store=tmp_path / "store")
        assert set(row) == {"name", "bytes", "licence", "citation", "address", "sha256", "path"}
        assert row["bytes"] == len(BODY)
        return row["path"]

    assert path() is None
    get()
    assert path() == str(get.target)
    get.target.write_bytes(BODY[:-1] + b"!")
    assert path() is None
    assert [row["name"] for row in download.present()] == list(data.catalogue())
