"""huggingface_hub's side of the comparison: makes hubs with its own downloads, and looks at them.

    huggingface.py make HUB plain|shared    downloads from a server in this process
    huggingface.py scan HUB                 what scan_cache_dir says, as JSON
    huggingface.py verify HUB               opens every file of every revision

The server knows a few repositories. A file's content follows from its repository, its revision
and its name, so that what is on disk can be checked later.
"""

import hashlib
import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

os.environ["HF_HUB_OFFLINE"] = "0"
os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
os.environ["HF_HUB_DOWNLOAD_TIMEOUT"] = "30"


def commit(number):
    return f"{number:040x}"


# (kind, id) -> commit -> {file name: version of its content}
REPOS = {
    ("model", "org/alpha"): {
        commit(1): {"config.json": 1, "model.safetensors": 1, "README.md": 1},
        commit(2): {"config.json": 1, "model.safetensors": 2, "README.md": 2},
        commit(3): {"config.json": 3, "model.safetensors": 2, "sub/dir/extra.bin": 3},
    },
    ("model", "org/beta"): {
        # The same weights as alpha's second revision.
        commit(4): {"config.json": 4, "model.safetensors": 2},
        commit(5): {"config.json": 4, "model.safetensors": 5, "only-here.txt": 5},
    },
    # Its older revision has a file that the newer one lacks.
    ("model", "org/gamma"): {
        commit(8): {"config.json": 8, "model.safetensors": 8, "unique.txt": 8},
        commit(9): {"config.json": 9, "model.safetensors": 9},
    },
    ("model", "solo"): {commit(6): {"config.json": 6, "model.safetensors": 6}},
    ("dataset", "org/alpha"): {commit(7): {"data.safetensors": 2, "config.json": 7}},
}
# What is downloaded, in order: repository, revision that is asked for, commit, files or all.
DOWNLOADS = [
    (("model", "org/alpha"), "main", commit(1), None),
    (("model", "org/alpha"), "main", commit(2), None),
    (("model", "org/alpha"), "refs/pr/1", commit(3), None),
    (("model", "org/beta"), "main", commit(5), None),
    (("model", "org/beta"), "main", commit(4), None),
    (("model", "org/gamma"), "main", commit(8), None),
    (("model", "org/gamma"), "main", commit(9), None),
    (("model", "solo"), commit(6), commit(6), None),
    (("dataset", "org/alpha"), "main", commit(7), None),
]


def content(name, version):
    if name.endswith(".safetensors"):
        shape = [100 + version, 4]
        size = shape[0] * shape[1] * 2
        tensor = {"dtype": "BF16", "shape": shape, "data_offsets": [0, size]}
        header = json.dumps({"model.embed_tokens.weight": tensor}).encode()
        seed = hashlib.sha256(bytes([version])).digest()
        return len(header).to_bytes(8, "little") + header + (seed * size)[:size]
    if name == "config.json":
        return json.dumps({"model_type": "llama", "version": version}).encode()
    return f"{name} {version}\n".encode() * 10


def digest(data):
    return hashlib.sha256(data).hexdigest()


class Hub(BaseHTTPRequestHandler):
    """As much of the Hub's protocol as a download needs."""

    protocol_version = "HTTP/1.1"
    heads = {}  # (kind, id) -> {revision: commit}
    serves_xet = False

    def log_message(self, *arguments):
        pass

    def answer(self, body, status=200, headers=()):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        path = unquote(urlsplit(self.path).path)
        if path.startswith("/api/"):
            return self.api(path.removeprefix("/api/"))
        kind = "model"
        if path.startswith("/datasets/"):
            kind, path = "dataset", path.removeprefix("/datasets")
        repo, _, rest = path[1:].partition("/resolve/")
        repo = (kind, repo)
        revision, name = self.split(repo, rest)
        data = content(name, REPOS[repo][self.heads[repo].get(revision, revision)][name])
        etag = digest(data)
        headers = [
            ("X-Repo-Commit", self.heads[repo].get(revision, revision)),
            ("ETag", f'"{etag}"'),
        ]
        if self.serves_xet and name.endswith(".safetensors"):
            headers += [
                ("X-Xet-Hash", etag),
                ("X-Xet-Refresh-Route", "/none"),
                ("X-Linked-Etag", f'"{etag}"'),
                ("X-Linked-Size", str(len(data))),
            ]
        self.answer(data, headers=headers)

    def split(self, repo, rest):
        for revision in [*self.heads[repo], *REPOS[repo]]:
            if rest.startswith(revision + "/"):
                return revision, rest.removeprefix(revision + "/")
        raise ValueError(rest)

    def api(self, path):
        kinds, _, rest = path.partition("/")
        kind = kinds.removesuffix("s")
        action = "/tree/" if "/tree/" in rest else "/revision/"
        repo, _, revision = rest.partition(action)
        repo = (kind, repo)
        sha = self.heads[repo].get(revision, revision)
        files = REPOS[repo][sha]
        if action == "/revision/":
            siblings = [{"rfilename": name} for name in files]
            body = {"id": repo[1], "sha": sha, "siblings": siblings}
        else:
            body = []
            for name, version in files.items():
                data = content(name, version)
                entry = {"type": "file", "path": name, "size": len(data), "oid": digest(data)[:40]}
                if name.endswith(".safetensors"):
                    lfs = {"oid": digest(data), "size": len(data), "pointerSize": 130}
                    entry |= {"lfs": lfs}
                    if self.serves_xet:
                        entry |= {"xetHash": digest(data)}
                body.append(entry)
        self.answer(json.dumps(body).encode(), headers=[("Content-Type", "application/json")])


def make(hub, kind):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    os.environ["HF_ENDPOINT"] = f"http://127.0.0.1:{server.server_port}"
    os.environ["HF_HUB_DISABLE_XET"] = "0" if kind == "shared" else "1"
    Hub.serves_xet = kind == "shared"
    from huggingface_hub import file_download, hf_hub_download, snapshot_download

    def xet_get(*, incomplete_path, xet_file_data, expected_size, **_):
        """Stands in for the storage service; everything around it is the library's."""
        for commits in REPOS.values():
            for files in commits.values():
                for name, version in files.items():
                    data = content(name, version)
                    if digest(data) == xet_file_data.file_hash and len(data) == expected_size:
                        Path(incomplete_path).write_bytes(data)
                        return
        raise ValueError(xet_file_data)

    file_download.xet_get = xet_get
    for (repo_type, repo_id), revision, sha, files in DOWNLOADS:
        Hub.heads.setdefault((repo_type, repo_id), {})[revision] = sha
        snapshot_download(
            repo_id, repo_type=repo_type, revision=revision, cache_dir=hub, allow_patterns=files
        )
    # One file alone, as many programs fetch them: a revision that is not whole.
    Hub.heads[("model", "org/beta")]["v1"] = commit(5)
    hf_hub_download("org/beta", "config.json", revision="v1", cache_dir=hub)
    unfinished = Path(hub) / "models--solo" / "blobs" / "abc.12345678.incomplete"
    unfinished.write_bytes(b"half")
    server.shutdown()


def scan(hub):
    from huggingface_hub import scan_cache_dir

    info = scan_cache_dir(hub)
    revisions = [
        {
            "kind": repo.repo_type,
            "repo_id": repo.repo_id,
            "repo_bytes": repo.size_on_disk,
            "commit": revision.commit_hash,
            "bytes": revision.size_on_disk,
            "refs": sorted(revision.refs),
            "files": sorted(
                str(file.file_path.relative_to(revision.snapshot_path)) for file in revision.files
            ),
        }
        for repo in info.repos
        for revision in repo.revisions
    ]
    detached = [
        revision.commit_hash
        for repo in info.repos
        for revision in repo.revisions
        # As our collector: a repository without a ref is left alone.
        if not revision.refs and any(other.refs for other in repo.revisions)
    ]
    print(
        json.dumps(
            {
                "bytes": info.size_on_disk,
                "warnings": [str(warning) for warning in info.warnings],
                "incomplete": sorted(str(file.file_path) for file in info.incomplete_files),
                "revisions": revisions,
                "detached_bytes": info.delete_revisions(*detached).expected_freed_size,
            }
        )
    )


def verify(hub):
    opened = 0
    for (kind, repo_id), commits in REPOS.items():
        for sha, files in commits.items():
            folder = f"{kind}s--{repo_id.replace('/', '--')}"
            snapshot = Path(hub) / folder / "snapshots" / sha
            for path in snapshot.rglob("*"):
                if path.is_dir():
                    continue
                name = path.relative_to(snapshot).as_posix()
                assert path.read_bytes() == content(name, files[name]), path
                opened += 1
    print(json.dumps({"opened": opened}))


if __name__ == "__main__":
    {"make": make, "scan": scan, "verify": verify}[sys.argv[1]](*sys.argv[2:])
