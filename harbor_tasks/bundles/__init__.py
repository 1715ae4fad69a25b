"""Bundles: built tasks in one archive whose digest is its identity, checked and unpacked on another machine."""

from harbor_tasks.bundles.archive import pack
from harbor_tasks.bundles.format import BundleInfo, Limits, PackedImage
from harbor_tasks.bundles.reader import inspect
from harbor_tasks.bundles.unpack import unpack
from harbor_tasks.bundles.verify import verify

__all__ = ["BundleInfo", "Limits", "PackedImage", "inspect", "pack", "unpack", "verify"]
