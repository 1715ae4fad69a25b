"""A byte that changed, anywhere in a bundle's file, is found; where it can be told, the file that it is in is named."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from harbor_tasks.bundles import BundleInfo, inspect
from harbor_tasks.bundles.format import TRAILER_SIZE, checksum_of
from harbor_tasks.bundles.stream import BrokenBundleError
from harbor_tasks.errors import AuthorError

from .kit import Forge

SAMPLES = 250


def test_a_changed_byte_anywhere_in_the_file_is_found(packed: BundleInfo, tmp_path: Path) -> None:
    data = packed.file.read_bytes()
    size = len(data)
    places = {*range(24), *range(size - TRAILER_SIZE - 8, size), *range(24, size, size // SAMPLES)}
    file = tmp_path / "x.hpb"
    for place in sorted(places):
        broken = bytearray(data)
        broken[place] ^= 1 << (place % 8)
        file.write_bytes(broken)
        with pytest.raises(AuthorError) as caught:
            inspect(file)
        assert str(file) in str(caught.value), place


def test_a_changed_byte_of_the_archive_is_found_in_the_file_that_it_is_of(forge: Forge, tmp_path: Path) -> None:
    """Compressed again, with the old trailer: so no checksum of the compression finds it first."""
    tar = forge.tar()
    good = forge.write(tmp_path / "good.hpb").read_bytes()[-TRAILER_SIZE:]
    lines = [line for line in forge.lines() if "blob" in line]
    first = {line["blob"]: line["path"] for line in reversed(lines)}
    at = 0
    named: Counter[bool] = Counter()
    for number, (name, content) in enumerate(forge.members):
        length = 512 + len(content) + -len(content) % 512
        for place in {at, at + 130, at + 511, at + 512, at + 512 + len(content) // 2, at + length - 1}:
            if place >= at + length:
                continue
            broken = bytearray(tar)
            broken[place] ^= 4
            file = forge.write(tmp_path / "x.hpb", bytes(broken))
            data = file.read_bytes()[:-TRAILER_SIZE]
            file.write_bytes(data + good[:-4] + checksum_of(data).to_bytes(4, "little"))
            with pytest.raises(BrokenBundleError) as caught:
                inspect(file)
            expected = {name, first.get(number - 4, name)}
            assert caught.value.member in expected, (name, place - at, str(caught.value))
            named[caught.value.member == first.get(number - 4)] += 1
        at += length
    assert min(named.values()) > 20
