"""Content-addressed images: an eval's image is made when its inputs change, and found by its tag when they did not.

- ensure.py: makes an eval's image, or finds that it is there; shipped.py: the one that a run takes
- bases.py, dockerfile.py: base images, and the author's Dockerfile
- builder.py, context.py, output.py: one build: by whom, from which files, what is said meanwhile
- verify.py: looks into a new image
- moving.py, credentials.py: pushes and pulls by the engine, and the credentials for them
- faults.py: whose fault a failed build is
"""

from harbor_tasks.images.builder import Engine
from harbor_tasks.images.ensure import ImageRef, ensure_image, existing_image
from harbor_tasks.images.shipped import image_for_run

__all__ = ["Engine", "ImageRef", "ensure_image", "existing_image", "image_for_run"]
