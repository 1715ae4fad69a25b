"""Content-addressed images: an eval's image is made when its inputs change, and found by its tag when they did not."""

from harbor_tasks.images.builder import Engine
from harbor_tasks.images.ensure import ImageRef, ensure_image, existing_image

__all__ = ["Engine", "ImageRef", "ensure_image", "existing_image"]
