"""Content-addressed images: an eval's image is made when its inputs change, and found by its tag when they did not."""

from harbor_tasks.images.builder import Engine
from harbor_tasks.images.ensure import ImageRef, ensure_image, existing_image
from harbor_tasks.images.shipped import image_for_run

__all__ = ["Engine", "ImageRef", "ensure_image", "existing_image", "image_for_run"]
