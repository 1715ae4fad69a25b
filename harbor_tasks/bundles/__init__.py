"""Bundles: built tasks in one archive whose digest is its identity, checked and unpacked on another machine.

- format.py, frame.py: the form of a bundle, and of the compression around it
- archive.py, listing.py, names.py: packs a build: what of it, in which order, under which name
- scan.py, secrets.py: no secret is packed that the eval does not allow
- own_image.py, harbor_set.py: the image that a bundle names, and what Harbor needs to run its tasks as a set
- reader.py, stream.py, index.py, aside.py: reads a bundle from its first byte to its last, and checks it on the way
- verify.py, unpack.py, cache.py: checks, unpacks, and keeps unpacked what `run` uses
- oci.py, artifact.py, reference.py: a bundle in a registry; stored_images.py: its images beside it
- transport.py, session.py, tokens.py, faults.py: how a registry is asked, and what it can do wrong
"""

from harbor_tasks.bundles.archive import pack
from harbor_tasks.bundles.format import BundleInfo, Limits, PackedImage
from harbor_tasks.bundles.reader import inspect
from harbor_tasks.bundles.unpack import unpack
from harbor_tasks.bundles.verify import verify

__all__ = ["BundleInfo", "Limits", "PackedImage", "inspect", "pack", "unpack", "verify"]
