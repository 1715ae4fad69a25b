#!/usr/bin/env python3
"""The first process of a trial's container: runs what harbor-pack asks for, and ends all that was started.

It is process 1, and root. So it needs no new process to end the others (a container whose processes are used up still
obeys), nobody but the kernel can end it, and with it the whole container ends: when harbor-pack is gone, standard input
ends, and so does this. No file of it is in the container: it comes over standard input, before the first request.

A request is a JSON object on one line of standard input, followed by ``bytes`` raw bytes when it has that key:

    {"do": "run", "argv", "env", "cwd", "user", "umask", "timeout", "limit"}   the bytes are the program's input
    {"do": "put", "clear": [paths]}       the bytes are a tar archive, unpacked at / after ``clear`` was removed
    {"do": "folder", "path", "user", "mode"}
    {"do": "list", "path", "names"}       which of these are below a folder, and what they are
    {"do": "read", "path", "offset", "limit"}
    {"do": "pack", "path", "limit"}       a folder as a tar archive: files, folders and links

Standard output is frames: one letter, four bytes of length (big end first), the content. ``o`` and ``e`` are what the
program of `run` printed, ``d`` is data of `read` and `pack`, ``r`` ends a request: a JSON object, ``{"error"}`` when it
could not be done. Standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import contextlib
import grp
import json
import os
import pwd
import select
import signal
import stat
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
from typing import Any, Iterator

BLOCK = 1 << 16
GRACE = 2.0  # seconds between SIGTERM and SIGKILL
LINGER = 10.0  # seconds after which processes that do not end are given up
ENTRIES = 200000  # files of one folder that are looked at
DEPTH = 99  # folders in folders that are kept: deeper ones only keep programs from removing them
KINDS = {stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}


class RequestError(Exception):
    """What was asked for cannot be done; the text says why."""


class Line:
    """Standard input and output: requests in, frames out."""

    def __init__(self) -> None:
        self.buffer = b""

    def fill(self) -> None:
        """Wait for more; the end of the line is the end of everything."""
        more = os.read(0, BLOCK)
        if not more:
            os._exit(0)
        self.buffer += more

    def request(self) -> Any:
        while b"\n" not in self.buffer:
            self.fill()
        line, _, self.buffer = self.buffer.partition(b"\n")
        return json.loads(line.decode())

    def payload(self, size: int) -> Any:
        """The raw bytes of a request as an open file without a name."""
        file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by whoever asked
        while size:
            if not self.buffer:
                self.fill()
            part, self.buffer = self.buffer[:size], self.buffer[size:]
            file.write(part)
            size -= len(part)
        file.seek(0)
        return file

    def send(self, kind: bytes, content: bytes) -> None:
        view = memoryview(kind + struct.pack(">I", len(content)) + content)
        while view:
            view = view[os.write(1, view) :]

    def write(self, content: bytes) -> int:
        """As a file: what is written is data."""
        for start in range(0, len(content), BLOCK):
            self.send(b"d", content[start : start + BLOCK])
        return len(content)


# ------------------------------------------------------------------------------------------------------ processes


def others() -> set[int]:
    """All live processes but this one; one that only waits to be collected does no more harm."""
    found = set()
    for name in os.listdir("/proc"):
        if name.isdigit() and name != "1":
            try:
                with open("/proc/%s/stat" % name, "rb") as file:
                    state = file.read().rpartition(b")")[2].split()[0]
            except OSError:
                continue
            if state not in (b"Z", b"X"):
                found.add(int(name))
    return found


def reap(codes: dict[int, int]) -> None:
    """Collect what has ended: process 1 is the parent of every orphan."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        codes[pid] = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def signal_all(number: int) -> None:
    """One signal to every process but this one, at once: nothing can fork away from it."""
    if os.getpid() != 1:  # on a machine itself this would end everything
        raise RequestError("not process 1")
    try:
        os.kill(-1, number)
    except ProcessLookupError:
        pass


def end_all(codes: dict[int, int]) -> int:
    """End every other process of the container; how many there were."""
    seen: set[int] = set()
    until = time.monotonic() + LINGER
    while True:
        reap(codes)
        rest = others()
        seen |= rest
        if not rest:
            return len(seen)
        if time.monotonic() > until:
            raise RequestError("processes do not end: %s" % sorted(rest)[:10])
        signal_all(signal.SIGKILL)
        time.sleep(0.002)


def account(spec: str) -> Any:
    """(uid, gid, groups, name, home) of ``user[:group]``, names or numbers, as in an image's configuration."""
    name, _, group = spec.partition(":")
    try:
        known = pwd.getpwuid(int(name)) if name.isdigit() else pwd.getpwnam(name or "root")
        uid, gid, user, home = known.pw_uid, known.pw_gid, known.pw_name, known.pw_dir
    except KeyError:
        if not name.isdigit():
            raise RequestError("the image has no user %s" % name) from None
        uid, gid, user, home = int(name), 0, "", "/"
    try:
        gid = (int(group) if group.isdigit() else grp.getgrnam(group).gr_gid) if group else gid
    except KeyError:
        raise RequestError("the image has no group %s" % group) from None
    return uid, gid, (os.getgrouplist(user, gid) if user else [gid]), user, home


def start(request: Any, given: Any, out: int, err: int) -> Any:
    """Start the program of a request as its user."""
    uid, gid, groups, user, home = account(request.get("user", ""))

    def become() -> None:
        os.umask(request.get("umask", 0o022))
        os.setgroups(groups)
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)

    env = {**os.environ, "HOME": home, **({"USER": user, "LOGNAME": user} if user else {}), **request.get("env", {})}
    cwd = request.get("cwd", "/")
    try:
        return subprocess.Popen(
            request["argv"], env=env, cwd=cwd if os.path.isdir(cwd) else "/", stdin=given, stdout=out, stderr=err,
            preexec_fn=become, start_new_session=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        raise RequestError("%s cannot be started: %s" % (request["argv"][0], error)) from None


class Run:
    """One program, from its start to the end of all that it started."""

    def __init__(self, line: Line, request: Any) -> None:
        self.line, self.request = line, request
        self.why = "exited"
        self.codes: dict[int, int] = {}
        self.room = {b"o": int(request["limit"]), b"e": int(request["limit"])}
        self.pipes: dict[int, bytes] = {}
        self.kill_at = 0.0

    def done(self, wake: int, given: Any) -> Any:
        """Run it; the reply."""
        started = time.monotonic()
        out, out_end = os.pipe()
        err, err_end = os.pipe()
        self.pipes = {out: b"o", err: b"e"}
        try:
            try:
                process = start(self.request, given, out_end, err_end)
            finally:
                os.close(out_end)
                os.close(err_end)
            self.watch(process.pid, wake, started + self.request["timeout"])
            seconds = time.monotonic() - started
            left = end_all(self.codes)
            while self.pipes:  # nobody writes any more: to the end of what is in them
                self.forward(list(self.pipes))
        finally:
            for pipe in list(self.pipes):
                os.close(pipe)
        code = self.codes.get(process.pid, -signal.SIGKILL)
        process.returncode = code  # collected already
        return {"why": self.why, "exit_code": code, "seconds": seconds, "left": left}

    def watch(self, child: int, wake: int, deadline: float) -> None:
        """Until the program itself has ended, by itself or because it had to."""
        while True:
            reap(self.codes)
            if child in self.codes:
                return
            now = time.monotonic()
            if self.kill_at and now >= self.kill_at:
                return
            if not self.kill_at and now >= deadline:
                self.end("timeout")
            limit = (self.kill_at or deadline) - now
            ready = select.select([wake, 0, *self.pipes], [], [], max(min(limit, 3600), 0))[0]
            if wake in ready:
                os.read(wake, 512)
            if 0 in ready:
                self.line.fill()
            self.forward([pipe for pipe in ready if pipe in self.pipes])

    def end(self, why: str) -> None:
        """Ask everything to end; GRACE later it is made to."""
        self.why, self.kill_at = why, time.monotonic() + GRACE
        signal_all(signal.SIGTERM)

    def forward(self, pipes: list[int]) -> None:
        """Pass on what was printed, as bytes; a program that prints without end is ended."""
        for pipe in pipes:
            block = os.read(pipe, BLOCK)
            kind = self.pipes[pipe]
            if not block:
                os.close(pipe)
                del self.pipes[pipe]
            elif self.room[kind]:
                self.line.send(kind, block[: self.room[kind]])
                self.room[kind] -= min(len(block), self.room[kind])
                if not self.room[kind] and not self.kill_at:
                    self.end("flooded")


# ---------------------------------------------------------------------------------------------------------- files


def remove(path: str) -> None:
    """Remove whatever is there: file, link or folder, however deep."""
    try:
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            os.unlink(path)
            return
    except FileNotFoundError:
        return
    top = opened_folder(path)
    try:
        empty(top)
    finally:
        os.close(top)
    os.rmdir(path)


def empty(top: int) -> None:
    """Remove what is in a folder. A folder in a folder is first moved to the top: so no path grows long."""
    prefix, count, pending = ".%s-" % os.urandom(8).hex(), 0, [""]
    while pending:
        name = pending.pop()
        at = opened_folder(name, top) if name else top
        try:
            with os.scandir(at) as entries:
                inside = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
            for inner, is_folder in inside:
                if not is_folder:
                    os.unlink(inner, dir_fd=at)
                    continue
                if name:
                    count += 1
                    os.rename(inner, prefix + str(count), src_dir_fd=at, dst_dir_fd=top)
                    inner = prefix + str(count)
                pending.append(inner)
        finally:
            if name:
                os.close(at)
        if name:
            os.rmdir(name, dir_fd=top)


def opened_folder(name: str, above: Any = None) -> int:
    """A folder, never a link to one, as a file descriptor."""
    return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)


def put(request: Any, given: Any) -> Any:
    """Unpack an archive that harbor-pack made: with owners and modes as they stand in it."""
    for path in request.get("clear", ()):
        remove(path)
    with tarfile.open(fileobj=given, mode="r:") as archive:
        archive.extraction_filter = lambda entry, _path: entry  # type: ignore[attr-defined] # owners and modes as told
        for entry in archive:
            target = os.path.join("/", entry.name)
            if not entry.isdir():
                remove(target)
                os.makedirs(os.path.dirname(target), exist_ok=True)
                archive.extract(entry, "/", numeric_owner=True)
            else:
                os.makedirs(target, exist_ok=True)
                os.chown(target, entry.uid, entry.gid)
                os.chmod(target, entry.mode)
    return {}


def folder(request: Any) -> Any:
    """An empty folder of this user's."""
    uid, gid = account(request.get("user", ""))[:2]
    remove(request["path"])
    os.makedirs(request["path"])
    os.chown(request["path"], uid, gid)
    os.chmod(request["path"], request["mode"])
    return {}


def walk(root: str, left_out: list[str]) -> Iterator[tuple[str, str, os.stat_result]]:
    """(path, path below the root, its state) of all below a folder, sorted, links not followed, DEPTH folders deep."""
    folders = [""]
    while folders:
        above = folders.pop()
        try:
            names = sorted(os.listdir(os.path.join(root, above)))
        except OSError as error:
            left_out.append("%s (%s)" % (above or ".", error.strerror))
            continue
        below = []
        for name in names:
            inner = os.path.join(above, name)
            path = os.path.join(root, inner)
            try:
                info = os.lstat(path)
            except OSError:
                continue
            if stat.S_ISDIR(info.st_mode) and inner.count(os.sep) >= DEPTH:
                left_out.append("%s (more than %d folders deep)" % (inner, DEPTH))
                continue
            if stat.S_ISDIR(info.st_mode):
                below.append(inner)
            yield path, inner, info
        folders += reversed(below)


def listing(request: Any) -> Any:
    """[name, mode with the kind of file, size] of those that are there."""
    found = []
    for name in request["names"]:
        try:
            info = os.lstat(os.path.join(request["path"], name))
        except (OSError, ValueError):
            continue
        found.append([name, info.st_mode, info.st_size])
    return {"entries": found}


def opened(path: str) -> Any:
    """A regular file, open for reading; nothing that a user put in its place is followed or waited for."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError("not a regular file")
    return os.fdopen(handle, "rb")


def read(line: Line, request: Any) -> Any:
    """A file from an offset on. ``size`` None: there is none."""
    try:
        file = opened(request["path"])
    except OSError as error:
        return {"size": None, "why": str(error)}
    with file:
        size, rest = os.fstat(file.fileno()).st_size, int(request["limit"])
        file.seek(request.get("offset", 0))
        while rest:
            block = file.read(min(BLOCK, rest))
            if not block:
                break
            line.send(b"d", block)
            rest -= len(block)
    return {"size": size}


def pack(line: Line, request: Any) -> Any:
    """A folder as an archive; ``left_out``: what is not in it, and why."""
    limit, left_out = int(request["limit"]), []  # type: tuple[int, list[str]]
    rest = limit
    with tarfile.open(fileobj=line, mode="w|", format=tarfile.PAX_FORMAT, bufsize=BLOCK) as archive:  # type: ignore[call-overload]
        for number, (path, name, info) in enumerate(walk(request["path"], left_out)):
            if number == ENTRIES:
                left_out.insert(0, "all after the first %d files" % ENTRIES)
                break
            entry = tarfile.TarInfo(name)
            entry.mode, entry.mtime = stat.S_IMODE(info.st_mode), int(info.st_mtime)
            content = None
            try:
                if stat.S_ISDIR(info.st_mode):
                    entry.type = tarfile.DIRTYPE
                elif stat.S_ISLNK(info.st_mode):
                    entry.type, entry.linkname = tarfile.SYMTYPE, os.readlink(path)
                elif stat.S_ISREG(info.st_mode) and info.st_size <= rest:
                    entry.size, content = info.st_size, opened(path)
                else:
                    left_out.append("%s (%s)" % (name, why_not(info, limit)))
                    continue
            except OSError as error:
                left_out.append("%s (%s)" % (name, error.strerror or error))
                continue
            with content or contextlib.nullcontext():
                archive.addfile(entry, content)
            rest -= entry.size
    return {"left_out": left_out[:1000], "count": len(left_out)}


def why_not(info: os.stat_result, limit: int) -> str:
    """Why something is no part of an archive."""
    if stat.S_ISREG(info.st_mode):
        return "%d bytes; no more than %d bytes are kept" % (info.st_size, limit)
    return KINDS.get(stat.S_IFMT(info.st_mode), "no regular file")


# ----------------------------------------------------------------------------------------------------------- main


def answer(line: Line, wake: int, request: Any) -> Any:
    """Do what one request says; the reply."""
    given = line.payload(int(request.get("bytes", 0)))
    try:
        do = request["do"]
        if do == "run":
            return Run(line, request).done(wake, given)
        if do in ("read", "pack"):
            return (read if do == "read" else pack)(line, request)
        return {"put": lambda: put(request, given), "folder": lambda: folder(request),
                "list": lambda: listing(request)}[do]()  # fmt: skip
    except RequestError as error:
        return {"error": str(error)}
    except (OSError, tarfile.TarError, ValueError, RecursionError) as error:
        return {"error": "%s: %s" % (type(error).__name__, error)}
    finally:
        given.close()


def main() -> None:
    if os.getpid() != 1 or os.getuid() != 0:
        sys.exit("conductor: only the first process of a container may run this, as root")
    wake, wake_end = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(wake_end, False)
    signal.set_wakeup_fd(wake_end)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    os.umask(0o022)
    line = Line()
    while True:
        reply = answer(line, wake, line.request())
        reap({})
        line.send(b"r", json.dumps(reply).encode())


if __name__ == "__main__":
    main()
