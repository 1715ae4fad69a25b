"""Bundles go to a real registry and come back: docker-registry, open over http and with a password over TLS."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import urllib.request
from pathlib import Path

import pytest

from harbor_tasks.bundles import oci, pack
from harbor_tasks.bundles.artifact import CONFIG_TYPE, IDENTITY, LAYER_TYPE
from harbor_tasks.bundles.oci import pull, push
from harbor_tasks.errors import AuthorError, MachineError
from harbor_tasks.images import credentials

from .conftest import Packed
from .kit import Certificate, credential_helper, docker_config, docker_registry, logged_in, own_address, serving, tree

pytestmark = pytest.mark.registry


@pytest.fixture
def repository(open_registry: str, request: pytest.FixtureRequest) -> str:
    """A repository of the test's own in the open registry."""
    return f"{open_registry}/tests/{abs(hash(request.node.nodeid))}"


def test_what_is_pulled_is_what_was_pushed(packed: Packed, repository: str, tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    pushed = push(packed.file, f"{repository}:1")
    pulled = pull(f"{repository}:1", tmp_path / "deep/er/tasks")
    assert pulled.digest == pushed.digest
    assert pulled.ref == f"{repository}@{pushed.digest}"
    assert pulled.bundle.digest == packed.info.digest
    built, got = tree(packed.tasks), tree(pulled.folder)
    built.pop(".harbor-pack/state.json")  # this machine's own
    assert {name: got[name] for name in built} == built
    assert {mode for mode, _ in got.values()} == {0o644, 0o755}
    assert [path.name for path in (tmp_path / "deep/er").iterdir()] == ["tasks"]


def test_progress_is_told(packed: Packed, repository: str, tmp_path: Path) -> None:
    size, sent, got = packed.file.stat().st_size, list[tuple[int, int]](), list[tuple[int, int]]()
    push(packed.file, repository, progress=lambda done, whole: sent.append((done, whole)))
    pull(repository, tmp_path / "out", progress=lambda done, whole: got.append((done, whole)))
    assert sent[-1] == got[-1] == (size, size)


def test_a_second_push_uploads_nothing(packed: Packed, repository: str) -> None:
    first, second = push(packed.file, f"{repository}:1"), push(packed.file, f"{repository}:1")
    assert (first.uploads, first.nothing_uploaded) == (3, False)
    assert first.uploaded > packed.info.size
    assert (second.uploads, second.uploaded, second.nothing_uploaded) == (0, 0, True)
    assert second.digest == first.digest
    again = push(packed.file, f"{repository}:2")  # another tag: the manifest alone
    assert (again.uploads, again.digest) == (1, first.digest)


def test_the_digest_depends_on_the_bundle_alone(packed: Packed, open_registry: str, tmp_path: Path) -> None:
    other = pack(packed.tasks, tmp_path / "another-name.hpb")
    one, two = push(packed.file, f"{open_registry}/tests/one"), push(other.file, f"{open_registry}/tests/two:x")
    assert one.digest == two.digest
    assert one.ref == f"{open_registry}/tests/one:latest"


def test_the_manifest_names_types_and_no_times(packed: Packed, repository: str) -> None:
    pushed = push(packed.file, repository)
    host, _, name = repository.partition("/")
    url = f"http://{host}/v2/{name}/manifests/{pushed.digest}"
    wanted = urllib.request.Request(url, headers={"Accept": "application/vnd.oci.image.manifest.v1+json"})
    with urllib.request.urlopen(wanted, timeout=10) as answer:
        text = answer.read().decode()
    manifest = json.loads(text)
    assert manifest["config"]["mediaType"] == CONFIG_TYPE
    assert [layer["mediaType"] for layer in manifest["layers"]] == [LAYER_TYPE]
    assert manifest["annotations"][IDENTITY] == packed.info.digest
    assert "created" not in text
    assert "time" not in text


def test_a_moved_tag_is_said_and_a_digest_stays(packed: Packed, repository: str, tmp_path: Path) -> None:
    first = push(packed.file, repository)
    shutil.copytree(packed.tasks, tmp_path / "other")
    build_json = tmp_path / "other/.harbor-pack/build.json"
    build_json.write_text(json.dumps({**json.loads(build_json.read_text()), "description": "another"}))
    said: list[str] = []
    second = push(pack(tmp_path / "other", tmp_path / "other.hpb").file, repository, say=said.append)
    assert second.digest != first.digest
    assert f"{repository}:latest was {first.digest} before" in said
    assert pull(f"{repository}@{first.digest}", tmp_path / "again").bundle.digest == packed.info.digest


def test_nothing_is_written_over(packed: Packed, repository: str, tmp_path: Path) -> None:
    push(packed.file, repository)
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("there", "link"):
        with pytest.raises(AuthorError, match=f"{name}: is there already"):
            pull(repository, tmp_path / name)
    assert not any((tmp_path / "there").iterdir())


def test_where_nothing_can_be_written(packed: Packed, repository: str, tmp_path: Path) -> None:
    push(packed.file, repository)
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file/out", Path("/proc/nothing/out")):
        with pytest.raises(MachineError, match=f"{place}: cannot be written"):
            pull(repository, place)


def test_what_is_not_there(packed: Packed, repository: str, tmp_path: Path) -> None:
    push(packed.file, f"{repository}:1")
    with pytest.raises(AuthorError, match="has no tag 2 there"):
        pull(f"{repository}:2", tmp_path / "out")
    with pytest.raises(AuthorError, match="nothing with the digest sha256:0000"):
        pull(f"{repository}@sha256:{'0' * 64}", tmp_path / "out")
    with pytest.raises(AuthorError, match="no tag latest"):
        oci.look(f"{repository}-else")
    assert not (tmp_path / "out").exists()


def test_a_push_chooses_no_digest(packed: Packed, repository: str) -> None:
    with pytest.raises(AuthorError, match="a digest cannot be chosen"):
        push(packed.file, f"{repository}@sha256:{'0' * 64}")


def test_a_folder_is_no_bundle(packed: Packed, repository: str) -> None:
    with pytest.raises(AuthorError):
        push(packed.tasks, repository)


@pytest.mark.parametrize("what", ["manifest", "config", "layer"])
def test_a_flipped_byte_in_the_registry_is_refused(packed: Packed, tmp_path: Path, what: str) -> None:
    with docker_registry(tmp_path / "registry") as host:
        pushed = push(packed.file, f"{host}/x")
        blobs = tmp_path / "registry/data/docker/registry/v2/blobs/sha256"
        digest = pushed.digest.removeprefix("sha256:")
        manifest = json.loads((blobs / digest[:2] / digest / "data").read_text())
        if what != "manifest":
            part = manifest["config"] if what == "config" else manifest["layers"][0]
            digest = part["digest"].removeprefix("sha256:")
        stored = blobs / digest[:2] / digest / "data"
        data = bytearray(stored.read_bytes())
        data[len(data) // 2] ^= 1
        stored.write_bytes(bytes(data))
        # a manifest is checked by docker-registry itself
        said = {"manifest": "fails", "config": "the configuration sha256:", "layer": "the bundle's file sha256:"}[what]
        with pytest.raises(MachineError, match=said) as refused:
            pull(f"{host}/x@{pushed.digest}", tmp_path / "out")
    assert digest in str(refused.value) or what == "manifest"
    assert not (tmp_path / "out").exists()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".out")]


def test_an_image_is_no_bundle(open_registry: str, packed: Packed, tmp_path: Path) -> None:
    host, blob = f"{open_registry}/tests/image", b"{}"
    digest = "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    push(packed.file, host)
    from harbor_tasks.bundles.reference import parse
    from harbor_tasks.bundles.transport import Transport

    config = {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": digest, "size": 2}
    image = {
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": config, "layers": []
    }  # fmt: skip
    with Transport(parse(host), "push to") as transport:
        transport.put_blob(blob, digest, 2)
        transport.put_manifest(json.dumps(image).encode(), "image")
    with pytest.raises(MachineError, match=r"is no bundle but application/vnd.oci.image.config"):
        pull(f"{host}:image", tmp_path / "out")


# ---- TLS and credentials ----


def test_tls_and_password(packed: Packed, login: str, certificate: Certificate, tmp_path: Path) -> None:
    pushed = push(packed.file, f"{login}/team/evals:1", ca=certificate.cert)
    pulled = pull(f"{login}/team/evals@{pushed.digest}", tmp_path / "out", ca=certificate.cert)
    assert pulled.bundle.digest == packed.info.digest


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_an_authority_of_the_environment(
    packed: Packed, login: str, certificate: Certificate, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, str(certificate.cert))
    assert push(packed.file, f"{login}/team/env:1").digest


def test_a_certificate_that_nobody_knows(packed: Packed, login: str, certificate: Certificate, tmp_path: Path) -> None:
    with pytest.raises(MachineError, match=r"certificate of .* is not trusted \(self.signed certificate\); name its"):
        push(packed.file, f"{login}/team/evals:1")


@pytest.mark.parametrize("plain_http", [False, True])
def test_an_authority_that_is_none_is_said_before_anything_else(
    packed: Packed, tmp_path: Path, certificate: Certificate, no_docker_config: Path, plain_http: bool
) -> None:
    asked: list[str] = []
    (no_docker_config / "config.json").write_text('{"credsStore": "tests"}')
    (tmp_path / "folder").mkdir()
    with serving(lambda handler: asked.append(handler.path)) as host:
        for ca, said in (
            (tmp_path / "nothing", r"--ca: .*nothing cannot be read \(No such file or directory\)"),
            (packed.file, r"--ca: .*holds no certificate in PEM form"),
            (certificate.key, r"--ca: .*holds no certificate in PEM form"),
            (tmp_path / "folder", r"--ca: .*folder is a folder without certificates"),
        ):
            for act in (
                lambda ca: push(packed.file, f"{host}/x", ca=ca, plain_http=plain_http),
                lambda ca: pull(f"{host}/x", tmp_path / "out", ca=ca, plain_http=plain_http),
            ):
                with pytest.raises(AuthorError, match=said):
                    act(ca)
    assert not asked
    assert not (tmp_path / "out").exists()


def test_authorities_in_a_folder_are_taken_by_their_hashes(
    packed: Packed, login: str, certificate: Certificate, tmp_path: Path
) -> None:
    shutil.copy(certificate.cert, tmp_path / "own.pem")
    subprocess.run(["openssl", "rehash", tmp_path], check=True, capture_output=True)
    assert push(packed.file, f"{login}/team/folder:1", ca=tmp_path).digest


def test_a_certificate_for_another_name(packed: Packed, tmp_path: Path, certificate: Certificate) -> None:
    said = r"certificate of 127.0.0.2:\d+ is not trusted .*IP address mismatch"
    with (
        docker_registry(tmp_path / "registry", tls=certificate, address="127.0.0.2") as host,
        pytest.raises(MachineError, match=said),
    ):
        push(packed.file, f"{host}/x", ca=certificate.cert)


def test_no_credentials(packed: Packed, guarded_registry: str, certificate: Certificate, tmp_path: Path) -> None:
    for act in (
        lambda: push(packed.file, f"{guarded_registry}/x", ca=certificate.cert),
        lambda: pull(f"{guarded_registry}/x", tmp_path / "out", ca=certificate.cert),
    ):
        with pytest.raises(
            AuthorError, match=f"wants credentials, and there are none .*docker login {guarded_registry}"
        ):
            act()


def test_a_wrong_password_is_not_shown(
    packed: Packed, guarded_registry: str, certificate: Certificate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = "dGVzdGVyOnNlY3JldC13b3Jk"  # tester:secret-word
    monkeypatch.setenv("DOCKER_CONFIG", str(docker_config(tmp_path / "d", logged_in(guarded_registry, wrong))))
    with pytest.raises(AuthorError, match="does not accept the credentials") as refused:
        push(packed.file, f"{guarded_registry}/x", ca=certificate.cert)
    assert "secret" not in str(refused.value)
    assert wrong not in str(refused.value)


def test_a_credential_helper(
    packed: Packed, guarded_registry: str, certificate: Certificate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {"credHelpers": {guarded_registry: "tests"}}
    monkeypatch.setenv("DOCKER_CONFIG", str(docker_config(tmp_path / "d", config)))
    with pytest.raises(AuthorError, match="and its credential helper docker-credential-tests is not installed; "):
        push(packed.file, f"{guarded_registry}/helped", ca=certificate.cert)
    credential_helper(tmp_path / "bin", "tests", "echo no >&2; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    with pytest.raises(AuthorError, match="docker-credential-tests fails; "):
        push(packed.file, f"{guarded_registry}/helped", ca=certificate.cert)
    credential_helper(tmp_path / "bin", "tests", "exec sleep 600")
    with monkeypatch.context() as hurry, pytest.raises(AuthorError, match="did not answer within 1 s; mend that"):
        hurry.setattr(credentials, "HELPER_SECONDS", 1.0)
        push(packed.file, f"{guarded_registry}/helped", ca=certificate.cert)
    credential_helper(tmp_path / "bin", "tests", """echo '{"Username": "tester", "Secret": "only-for-tests"}'""")
    assert push(packed.file, f"{guarded_registry}/helped", ca=certificate.cert).digest


def test_a_configuration_that_is_broken_is_what_is_said(
    packed: Packed, guarded_registry: str, certificate: Certificate, no_docker_config: Path
) -> None:
    (no_docker_config / "config.json").write_text('{"auths": {')
    with pytest.raises(AuthorError, match=r"wants credentials, and .*/config.json is no JSON \(line 1"):
        push(packed.file, f"{guarded_registry}/x", ca=certificate.cert)


def test_a_registry_that_wants_no_credentials_is_not_stopped_by_their_fault(
    packed: Packed, repository: str, no_docker_config: Path, tmp_path: Path
) -> None:
    (no_docker_config / "config.json").write_text("[]")
    said: list[str] = []
    push(packed.file, repository, say=said.append)
    pull(repository, tmp_path / "out", say=said.append)
    faults = [line for line in said if "config.json" in line]
    assert len(faults) == 2
    assert all("holds no JSON object; mend it" in line for line in faults)


def test_no_credentials_from_netrc(
    packed: Packed, guarded_registry: str, certificate: Certificate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".netrc").write_text("default login tester password only-for-tests\n")
    (tmp_path / ".netrc").chmod(0o600)
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    with pytest.raises(AuthorError, match="wants credentials"):
        push(packed.file, f"{guarded_registry}/x", ca=certificate.cert)


# ---- http ----


def test_http_elsewhere_only_when_asked_for(packed: Packed, tmp_path: Path) -> None:
    with docker_registry(tmp_path / "registry", address="0.0.0.0") as host:
        there = f"{own_address()}:{host.rpartition(':')[2]}/x"
        with pytest.raises(MachineError, match="speaks http and not https; --plain-http takes it so"):
            push(packed.file, there)
        assert push(packed.file, there, plain_http=True).uploads == 3
        assert pull(there, tmp_path / "out", plain_http=True).bundle.digest == packed.info.digest


def test_http_where_there_is_tls(packed: Packed, login: str) -> None:
    with pytest.raises(MachineError, match="status 400"):
        push(packed.file, f"{login}/x", plain_http=True)


def test_a_proxy_is_not_between_us_and_this_machine(
    packed: Packed, repository: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    assert push(packed.file, repository).digest


# ---- the way there ----


def test_nobody_answers(packed: Packed, tmp_path: Path) -> None:
    with docker_registry(tmp_path / "registry") as host:
        pass
    with pytest.raises(MachineError, match=f"{host} cannot be reached, or hung up: Connection refused"):
        push(packed.file, f"{host}/x")
    with pytest.raises(MachineError, match=r"registry.invalid cannot be reached"):
        pull("registry.invalid/x", tmp_path / "out")


def test_a_broken_bundle_is_not_pushed(packed: Packed, repository: str, tmp_path: Path) -> None:
    data = bytearray(packed.file.read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "broken.hpb").write_bytes(bytes(data))
    with pytest.raises(AuthorError, match=r"broken\.hpb"):
        push(tmp_path / "broken.hpb", repository)
    with pytest.raises(AuthorError, match="no tag"):
        oci.look(repository)
