"""Makes an eval's image, or finds that it is there: its own base if it has a Dockerfile, the runtime, the eval's layer.

Each of the three is named after its inputs and labelled with them (``harbor-pack.content``), so what did not change is
not built: a changed skill costs one layer, a second eval on the same base costs no runtime.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from harbor_tasks.errors import AuthorError, MachineError
from harbor_tasks.helpers import cache_folder
from harbor_tasks.images.bases import Base, find_base, is_pinned, local_base, short
from harbor_tasks.images.builder import (
    Engine,
    OnEvent,
    Recipe,
    build,
    build_with_buildx,
    engine_errors,
    has_buildx,
    inspect,
    labels_of,
)
from harbor_tasks.images.context import listed
from harbor_tasks.images.credentials import fault_before_asking, registry_of
from harbor_tasks.images.dockerfile import Dockerfile, parse
from harbor_tasks.images.faults import failed
from harbor_tasks.images.output import BuildFailedError
from harbor_tasks.images.verify import verify_layer
from harbor_tasks.resources import resource
from harbor_tasks.tasks.manifest import BuildManifest, read_manifest
from harbor_tasks.tasks.plan import BUILD_DIR, SANDBOX_HOME, TaskFile, made
from harbor_tasks.tasks.runtime import AGENTS, DEFAULT_BASE, files_digest, image_tag, runtime_files

BASE_VARIABLE = "HARBOR_PACK_BASE"
"""The base of evals that name none, for machines without a registry."""
_STEP = re.compile(r"Step (\d+)/\d+ : ")


@dataclass(frozen=True)
class ImageRef:
    """An eval's image on an engine: its tag and id, whether it was built just now, the base that it was made from."""

    tag: str
    id: str
    built: bool
    base: str
    """As it was asked for, with its digest where one is known."""
    agents: tuple[str, ...] = ()

    def as_json(self) -> dict[str, object]:
        """The image as plain data."""
        return {
            "image": self.tag, "id": self.id, "built": self.built, "base": self.base, "agents": list(self.agents),
        }  # fmt: skip


def ensure_image(
    built: Path, engine: Engine, *, locked: bool = False, base: str | None = None, agents: Sequence[str] = (),
    on_event: OnEvent | None = None,
) -> ImageRef:  # fmt: skip
    """The image of the eval whose tasks ``built`` holds, built if it is not there with the same content.

    ``locked`` refuses bases that are named by a tag; ``base`` is taken in place of the eval's own; ``agents`` are the
    programs that must be in it (others may be). AuthorError for a base that lacks what a sandbox needs, or a Dockerfile
    that does not build; MachineError for the engine, the network, or a builder that is not here.
    """
    unknown = sorted(set(agents) - set(AGENTS))
    if unknown:
        raise AuthorError(f"there is no agent program {unknown[0]} for images; known are {', '.join(AGENTS)}")
    manifest = read_manifest(built)
    if base is not None and manifest.sandbox.dockerfile is not None:
        raise AuthorError("--base: the base of this eval is its own Dockerfile; change its FROM")
    plan = _Plan(
        manifest, built / BUILD_DIR, engine, base, tuple(sorted(set(agents))), on_event or (lambda _line: None)
    )
    if locked:
        plan.check_locked()
    if plan.as_it_is:
        found = find_base(engine, manifest.image, plan.on_event)
        return ImageRef(manifest.image, found.id, False, str(found))
    plan.check_tag()
    there = plan.existing()
    if there is not None:
        return there
    with _alone(plan.on_event):
        return plan.existing() or plan.make()  # another process may have made it while we waited


def existing_image(built: Path, engine: Engine) -> ImageRef | None:
    """The eval's image if it is on the engine, of the same content and on the base that it is asked to be on."""
    manifest = read_manifest(built)
    plan = _Plan(manifest, built / BUILD_DIR, engine, None, (), lambda _line: None)
    if not plan.as_it_is:
        return plan.existing()
    found = local_base(engine, manifest.image)
    return None if found is None else ImageRef(manifest.image, found.id, False, str(found))


@dataclass(frozen=True)
class _Plan:
    """One eval's image on one engine."""

    manifest: BuildManifest
    meta: Path
    engine: Engine
    base_option: str | None
    agents: tuple[str, ...]
    on_event: OnEvent

    @property
    def as_it_is(self) -> bool:
        """The author's image is used unchanged."""
        return not self.manifest.sandbox.sealed and self.manifest.sandbox.image is not None

    @cached_property
    def layer(self) -> tuple[TaskFile, ...]:
        return listed(self.meta / "layer")

    @cached_property
    def context(self) -> tuple[TaskFile, ...]:
        """The files of the author's own base."""
        return listed(self.meta / "base")

    @cached_property
    def dockerfile(self) -> Dockerfile | None:
        """The author's Dockerfile."""
        name = self.dockerfile_name
        if name is None:
            return None
        try:
            return parse((self.meta / "base" / name).read_text(encoding="utf-8", errors="replace"))
        except OSError:
            raise AuthorError(f"{self.meta / 'base' / name}: cannot be read; build the eval again") from None

    @property
    def dockerfile_name(self) -> str | None:
        path = self.manifest.sandbox.dockerfile
        return None if path is None else path.rpartition("/")[2]

    @property
    def base_reference(self) -> str:
        """The base image that is asked for: the option, the eval's own, this machine's, the default."""
        named = self.base_option or self.manifest.sandbox.image
        return named or os.environ.get(BASE_VARIABLE) or DEFAULT_BASE

    def check_locked(self) -> None:
        """Every base must be named by digest; the message gives the digest that it has now."""
        if self.dockerfile is not None:
            references = [
                (f"{self.manifest.sandbox.dockerfile}:{n}: ", text) for n, text in self.dockerfile.references()
            ]
        else:
            references = [("", self.base_reference)]
        for place, reference in references:
            if not is_pinned(reference):
                found = local_base(self.engine, reference)
                pinned = found and (found.digest or found.id)
                how = f"it is {pinned} now" if pinned else "name it by its digest (name@sha256:…)"
                raise AuthorError(f"{place}--locked: the base {reference} is a tag, which may move; {how}")

    def check_tag(self) -> None:
        """The folder must hold what its image is named after: a tag that is right for other files would be a lie."""
        if image_tag(self.manifest.name, self.manifest.sandbox, self.layer, self.context) != self.manifest.image:
            raise AuthorError(
                f"{self.meta.parent}: its files are not those that its image is named after (changed since, or built "
                "by another version of harbor-pack); build the eval again"
            )

    @property
    def content(self) -> str:
        """What the image is made of, apart from a base image and the agent programs, which have labels of their own."""
        return _hash(["image", self.manifest.image])

    def existing(self) -> ImageRef | None:
        """The image, if it is here with the same content, the agents asked for, and a base that did not move."""
        found = inspect(self.engine, self.manifest.image)
        labels = labels_of(found)
        has = tuple(labels.get("harbor-pack.agents", "").split())
        same = labels.get("harbor-pack.content") == self.content and set(self.agents) <= set(has)
        if found is None or not same or not self._is_on_base(labels):
            return None
        return ImageRef(self.manifest.image, str(found["Id"]), False, labels.get("harbor-pack.base", ""), has)

    def _is_on_base(self, labels: Mapping[str, str]) -> bool:
        """Whether an image is on the base that is asked for, as it is now.

        One that was made with ``--base`` will do where nobody names a base and the eval's own is not here.
        """
        identity = self._identity()
        if self.dockerfile is not None or labels.get("harbor-pack.base-reference") == self.base_reference:
            return identity is None or identity == labels.get("harbor-pack.base-id")
        named = self.base_option or (self.manifest.sandbox.image is None and os.environ.get(BASE_VARIABLE))
        if named or identity is not None:
            return False
        self.on_event(
            f"{self.base_reference} is not here; taking the image that was made on {labels['harbor-pack.base']}"
        )
        return True

    def _identity(self) -> str | None:
        """What the base is now, by ids; None when it is not here to be asked."""
        if self.dockerfile is None:
            found = local_base(self.engine, self.base_reference)
            return None if found is None else found.id
        found_all = [local_base(self.engine, reference) for _line, reference in self.dockerfile.references()]
        ids = [found.id for found in found_all if found is not None]
        return None if len(ids) < len(found_all) else _hash([files_digest(self.context).hex(), *ids])

    def make(self) -> ImageRef:
        """Build what is missing of base, runtime and eval image."""
        self._say_credential_faults()
        if self.dockerfile is None:
            base = find_base(self.engine, self.base_reference, self.on_event)
            identity = base.id
        else:
            base = self._own_base(self.dockerfile)
            identity = str(self._identity())
        self.on_event(f"base {base}")
        # An author's Dockerfile that is not to be sealed stays what it is.
        below = base.id if self.dockerfile is not None and not self.manifest.sandbox.sealed else self._runtime(base)
        labels = _labels("image", self.content) | {
            "harbor-pack.base": str(base), "harbor-pack.base-id": identity,
            "harbor-pack.base-reference": base.reference, "harbor-pack.agents": " ".join(self.agents),
        }  # fmt: skip
        copy = f"COPY layer/ {SANDBOX_HOME}/layer/\n" if self.layer else ""
        health = self._own_health_check(below)
        text = f"FROM {below}\nWORKDIR {self.manifest.sandbox.workdir}\n{health}{copy}{_label_line(labels)}"
        files = (made("Dockerfile", text), *(replace(f, path=f"layer/{f.path}") for f in self.layer))
        recipe = Recipe(self.manifest.image, files)
        identifier = self._build(recipe, "the eval's image")
        verify_layer(self.engine, identifier, f"{SANDBOX_HOME}/layer", self.layer)
        return ImageRef(recipe.tag, identifier, True, str(base), self.agents)

    def _own_health_check(self, below: str) -> str:
        """In place of the base's, which is for its own program: Harbor would wait for it before each trial.

        One that is always passed, and not NONE: `docker compose up --wait` takes that for a fault. Without one it waits
        for nothing, so there is none unless it has to be.
        """
        has = (inspect(self.engine, below) or {}).get("Config", {}).get("Healthcheck")
        return 'HEALTHCHECK --interval=2s --timeout=10s CMD ["true"]\n' if has and self.manifest.sandbox.sealed else ""

    def _say_credential_faults(self) -> None:
        """The SDK fails for a helper that is not installed; here it is only said."""
        references = (
            [text for _line, text in self.dockerfile.references()] if self.dockerfile else [self.base_reference]
        )
        for registry, text in sorted({registry_of(text): text for text in references}.items()):
            if (fault := fault_before_asking(text)) is not None:
                self.on_event(f"warning: no credentials for {registry}: {fault}")

    def _own_base(self, dockerfile: Dockerfile) -> Base:
        """The image of the author's Dockerfile."""
        path = self.manifest.sandbox.dockerfile or ""
        if dockerfile.buildkit and not has_buildx(self.engine):
            line, name = dockerfile.buildkit[0]
            raise AuthorError(
                f"{path}:{line}: {name} needs BuildKit; install Docker's buildx plug-in (docker/plugins.sh), or write "
                "the Dockerfile without it"
            )
        for _line, reference in dockerfile.references():
            find_base(self.engine, reference, self.on_event)
        content = _hash(["base", self.dockerfile_name, str(self._identity())])
        tag = f"harbor-pack/base:{content[:16]}"
        if not self._is_here(tag, content):
            recipe = Recipe(tag, self.context, str(self.dockerfile_name), labels=_labels("base", content))
            self._build(recipe, path, dockerfile)
        found = local_base(self.engine, tag)
        if found is None:
            raise MachineError(f"the container engine has lost the image {tag} that was just built")
        return Base(path, found.id, None)

    def _runtime(self, base: Base) -> str:
        """The id of the runtime image on this base, with the agents that are asked for."""
        dockerfile, *files = runtime_files()
        content = _hash(["runtime", files_digest([dockerfile, *files]).hex(), base.id, *self.agents])
        tag = f"harbor-pack/runtime:{content[:16]}"
        found = inspect(self.engine, tag) if self._is_here(tag, content) else None
        if found is not None:
            return str(found["Id"])
        args = {"BASE": base.id, "AGENTS": " ".join(self.agents), "STAGE": content[:16]}
        if self.agents:
            args["NPM_CONFIG_REGISTRY"] = os.environ.get("npm_config_registry", "")  # noqa: SIM112 - npm's own spelling
            files.append(made("certificates.pem", _certificates()))
        labels = _labels("runtime", content) | {"harbor-pack.agents": args["AGENTS"], "harbor-pack.base-id": base.id}
        text = resource("docker", dockerfile.path).read_text(encoding="utf-8") + _label_line(labels)
        try:
            return self._build(Recipe(tag, (made("Dockerfile", text), *files), args=args), "the runtime image")
        finally:
            self._drop_stage(content[:16])

    def _is_here(self, tag: str, content: str) -> bool:
        return labels_of(inspect(self.engine, tag)).get("harbor-pack.content") == content

    def _build(self, recipe: Recipe, what: str, dockerfile: Dockerfile | None = None) -> str:
        """Build one image; an image of the same name that was made of something else goes."""
        old = inspect(self.engine, recipe.tag)
        step = 0

        def on_line(line: str) -> None:
            nonlocal step
            found = _STEP.match(line)
            if found is not None:
                step = int(found[1])
                if "LABEL harbor-pack" not in line:
                    self.on_event(line)

        self.on_event(f"building {recipe.tag} ({what})")
        use_buildx = dockerfile is not None and bool(dockerfile.buildkit)
        try:
            identifier = (build_with_buildx if use_buildx else build)(self.engine, recipe, on_line)
        except BuildFailedError as error:
            if dockerfile is None and error.reached is not None:  # an author's own steps stay, for the next try
                _remove(self.engine, error.reached)
            raise failed(what, error, dockerfile, step) from None
        if old is not None and old["Id"] != identifier:
            _remove(self.engine, str(old["Id"]))
        return identifier

    def _drop_stage(self, stage: str) -> None:
        """Remove the stage that installed the agents: nothing needs it any more."""
        with engine_errors("list images"):
            left = self.engine.client.api.images(filters={"label": f"harbor-pack.stage={stage}", "dangling": True})
        for image in left:
            _remove(self.engine, image["Id"])


def _labels(kind: str, content: str) -> dict[str, str]:
    return {"harbor-pack": "1", "harbor-pack.kind": kind, "harbor-pack.content": content}


def _label_line(labels: Mapping[str, str]) -> str:
    """One instruction for all of them: given apart, the engine takes a step for each."""
    return "LABEL " + " ".join(f"{name}={json.dumps(text)}" for name, text in labels.items()) + "\n"


def _hash(parts: Sequence[str | None]) -> str:
    return hashlib.sha256(json.dumps(list(parts)).encode()).hexdigest()


def _remove(engine: Engine, image: str) -> None:
    """Remove an image by its id, unless something still uses it."""
    from docker.errors import APIError

    try:
        engine.client.api.remove_image(image)
    except APIError as error:
        if error.status_code not in (404, 409):
            raise MachineError(f"the container engine cannot remove the image {short(image)}: {error}") from None


def _certificates() -> bytes:
    """The authorities that the caller's npm trusts besides its own."""
    for variable in ("NODE_EXTRA_CA_CERTS", "npm_config_cafile"):
        path = os.environ.get(variable)
        if path:
            try:
                return Path(path).read_bytes()
            except OSError as error:
                raise MachineError(f"{variable}={path}: cannot be read ({error.strerror})") from None
    return b""


@contextmanager
def _alone(on_event: OnEvent) -> Iterator[None]:
    """One process of this user builds at a time, so that two at once do not build the same image twice."""
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / "images.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:  # no place for a lock: the second build is merely for nothing
        yield
        return
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_event("waiting for another build of an image")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
