"""A schema registry for tests: an HTTP server that speaks the documented API of Confluent's."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

#: Subject → its versions, the oldest first: what ``GET /subjects/S/versions/N`` answers, without subject and version.
#: One with ``deleted=True`` is softly deleted: only requests with ``?deleted=true`` see it.
Subjects = Mapping[str, Sequence[Mapping[str, Any]]]


def version(number: int, schema: Any, **more: Any) -> dict[str, Any]:
    """A version whose schema has this id; of Avro, as the API says where ``schemaType`` is left out."""
    return {"id": number, "schema": json.dumps(schema), **more}


@contextmanager
def registry_of(subjects: Subjects, user: str | None = None, prefix: str = "") -> Iterator[tuple[str, list[str]]]:
    """A server with these subjects: its URL, and the paths that were asked for. ``user``: NAME:PASSWORD, which it
    wants; ``prefix``: of its paths."""
    asked: list[str] = []
    wanted = None if user is None else f"Basic {base64.b64encode(user.encode()).decode()}"

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path, query = urlsplit(self.path)[2:4]
            asked.append(path)
            if wanted is not None and self.headers.get("Authorization") != wanted:
                return self._answer(401, {"error_code": 401, "message": "Unauthorized"})
            words = [unquote(word) for word in path.removeprefix(prefix).strip("/").split("/")]
            versions = subjects.get(words[1], ()) if words[0] == "subjects" and path.startswith(prefix) else ()
            seen = {n: one for n, one in enumerate(versions, 1) if query == "deleted=true" or "deleted" not in one}
            if not seen:
                return self._answer(404, {"error_code": 40401, "message": "Subject not found."})
            if words[2:] == ["versions"]:
                return self._answer(200, list(seen))
            number = int(words[3])
            return self._answer(200, {"subject": words[1], "version": number, **seen[number]})

        def _answer(self, status: int, content: Any) -> None:
            data = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}{prefix}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
