"""The container image, the Helm chart and the manifests that come out of it."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
from ruamel.yaml import YAML

from api.app import create_app
from detector.app import GRACE_S, STOP_S
from detector.settings import Settings, load_settings
from tests.test_api import FakeView, StoreReader

ROOT = Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "oddnode"
USER = 10001
OLDEST, NEWEST = "1.27", kubernetes_validate.latest_version()
needs_helm = pytest.mark.skipif(
    shutil.which("helm") is None, reason="helm is not installed: Debian does not ship it"
)


def renderer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("render_manifests", ROOT / "scripts/render_manifests.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def documents(text: str) -> Iterator[dict[str, Any]]:
    for found in YAML(typ="safe").load_all(text):
        if found is not None:
            yield found


def by_kind(text: str) -> dict[str, dict[str, Any]]:
    found = {document["kind"]: document for document in documents(text)}
    assert len(found) == len(list(documents(text))), "a kind is there twice"
    return found


def plain() -> dict[str, dict[str, Any]]:
    return by_kind((DEPLOY / "manifests" / "oddnode.yaml").read_text(encoding="utf-8"))


def validate(document: dict[str, Any], version: str) -> None:
    kubernetes_validate.validate(document, version, strict=True)


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_manifests_are_what_kubernetes_takes(version: str) -> None:
    found = plain()
    assert set(found) == {
        "ConfigMap", "Deployment", "NetworkPolicy", "PersistentVolumeClaim",
        "PodDisruptionBudget", "Service", "ServiceAccount",
    }  # fmt: skip
    for document in found.values():
        validate(document, version)


def test_the_oldest_kubernetes_validated_is_the_oldest_that_the_chart_takes() -> None:
    chart = YAML(typ="safe").load(CHART / "Chart.yaml")
    assert chart["kubeVersion"] == f">={OLDEST}.0-0"


def test_validation_refuses_what_kubernetes_would() -> None:
    document = plain()["Deployment"]
    document["spec"]["strategie"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        validate(document, NEWEST)


def test_manifests_are_rendered_from_this_chart() -> None:
    module = renderer()
    for name in module.FILES:
        first = (module.MANIFESTS / name).read_text(encoding="utf-8").splitlines()[0]
        assert first == f"{module.HEAD}{module.chart_sha256()}", "run scripts/render_manifests.py"
    assert {str(p.relative_to(module.MANIFESTS)) for p in module.MANIFESTS.rglob("*.yaml")} == set(
        module.FILES
    )


def test_the_pod_is_locked_down() -> None:
    pod = plain()["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["automountServiceAccountToken"] is False
    assert plain()["ServiceAccount"]["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == pod["securityContext"]["fsGroup"] == USER
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    assert container["resources"]["requests"].keys() == {"cpu", "memory"}
    assert "memory" in container["resources"]["limits"]
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
    assert not [volume for volume in pod["volumes"] if "hostPath" in volume]


def test_one_writer() -> None:
    spec = plain()["Deployment"]["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    assert spec["template"]["spec"]["terminationGracePeriodSeconds"] > STOP_S + GRACE_S


def test_probes_ask_what_is_answered(tmp_path: Path) -> None:
    (container,) = plain()["Deployment"]["spec"]["template"]["spec"]["containers"]
    asked = {
        name: container[name]["httpGet"]["path"]
        for name in ("startupProbe", "livenessProbe", "readinessProbe")
    }
    assert asked == {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}
    assert set(asked.values()) <= set(create_app(FakeView(StoreReader(tmp_path / "x.db"))).openapi()["paths"])


def settings_in(documents: dict[str, dict[str, Any]], folder: Path) -> Settings:
    path = folder / "oddnode.yaml"
    path.write_text(documents["ConfigMap"]["data"]["oddnode.yaml"], encoding="utf-8")
    return load_settings(path)


def test_settings_in_the_config_map_are_valid_and_fit_the_pod(tmp_path: Path) -> None:
    found = plain()
    settings = settings_in(found, tmp_path)
    pod = found["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert container["args"] == ["serve", "--config", f"{mounts['config']}/oddnode.yaml"]
    assert settings.store.path.parent == Path(mounts["data"])
    assert settings.http.host == "0.0.0.0"
    assert [port["containerPort"] for port in container["ports"]] == [settings.http.port]
    assert {volume["name"] for volume in pod["volumes"]} == set(mounts)
    assert settings.source.options().url == "http://victoria-metrics:8428"


def test_the_network_policy_lets_the_default_database_and_names_through() -> None:
    spec = plain()["NetworkPolicy"]["spec"]
    ports = {port["port"] for rule in spec["egress"] for port in rule["ports"]}
    assert {53, 8428, 9090, 9093} <= ports
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert [port["port"] for rule in spec["ingress"] for port in rule["ports"]] == ["http"]


def test_selectors_find_the_pod() -> None:
    found = plain()
    labels = found["Deployment"]["spec"]["template"]["metadata"]["labels"].items()
    for selector in (
        found["Service"]["spec"]["selector"],
        found["Deployment"]["spec"]["selector"]["matchLabels"],
        found["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
        found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
    ):
        assert selector.items() <= labels
    for name in ("servicemonitor", "vmservicescrape"):
        path = DEPLOY / "manifests" / "monitoring" / f"{name}.yaml"
        ((monitor),) = documents(path.read_text(encoding="utf-8"))
        assert (
            monitor["spec"]["selector"]["matchLabels"].items()
            <= found["Service"]["metadata"]["labels"].items()
        )
        (endpoint,) = monitor["spec"]["endpoints"]
        assert endpoint["port"] in {port["name"] for port in found["Service"]["spec"]["ports"]}
        assert endpoint["path"] == "/metrics"


def test_values_fit_their_schema() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    values = YAML(typ="safe").load(CHART / "values.yaml")
    jsonschema.Draft7Validator.check_schema(schema)
    jsonschema.validate(values, schema)
    assert set(schema["properties"]) == {*values, "global"}
    for wrong in (
        {"config": {"source": {"url": "victoria:8428"}}},
        {"config": {"source": {"url": "http://v"}, "store": {"path": "/x"}}},
        {"config": {"source": {"url": "http://v"}, "http": {"port": 80}}},
        {"replicas": 0},
        {"terminationGracePeriodSeconds": 5},
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(values | wrong, schema)


def test_chart_and_package_have_one_version() -> None:
    chart = YAML(typ="safe").load(CHART / "Chart.yaml")
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f'version = "{chart["appVersion"]}"' in project


# --- with helm


def helm(*options: str) -> subprocess.CompletedProcess[str]:
    command = ["helm", "template", "oddnode", str(CHART), "--namespace", "gpu", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def rendered(*options: str) -> dict[str, dict[str, Any]]:
    done = helm(*options)
    assert done.returncode == 0, done.stderr
    return by_kind(done.stdout)


@needs_helm
def test_helm_finds_nothing_to_complain_about() -> None:
    done = subprocess.run(
        ["helm", "lint", "--strict", str(CHART)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout


@needs_helm
def test_manifests_are_exactly_what_helm_renders() -> None:
    module = renderer()
    for name, text in module.rendered().items():
        assert (module.MANIFESTS / name).read_text(encoding="utf-8") == text, name


@needs_helm
def test_secrets_become_files_that_the_settings_name(tmp_path: Path) -> None:
    found = rendered(
        *("--set", "secrets.tls.name=tls,secrets.tls.caKey=ca.crt"),
        *("--set", "secrets.tls.certKey=tls.crt,secrets.tls.keyKey=tls.key"),
        *("--set", "secrets.bearerToken.name=vm-token"),
    )
    settings = settings_in(found, tmp_path)
    pod = found["Deployment"]["spec"]["template"]["spec"]
    mounts = {mount["name"]: mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
    assert settings.source.bearer_token_file == Path(mounts["bearer"], "token")
    assert settings.source.ca_file == Path(mounts["tls"], "ca.crt")
    assert settings.source.cert_file == Path(mounts["tls"], "tls.crt")
    assert settings.source.key_file == Path(mounts["tls"], "tls.key")
    secrets = {v["name"]: v["secret"]["secretName"] for v in pod["volumes"] if "secret" in v}
    assert secrets == {"bearer": "vm-token", "tls": "tls"}
    for document in found.values():
        validate(document, NEWEST)
    basic = rendered(
        *("--set", "secrets.basicPassword.name=pw"), *("--set", "config.source.basic_username=odd")
    )
    assert settings_in(basic, tmp_path).source.basic_password_file == Path(
        "/etc/oddnode/secrets/basic/password"
    )


@needs_helm
def test_tokens_and_https_of_the_service_come_from_secrets(tmp_path: Path) -> None:
    found = rendered(
        *("--set", "secrets.apiTokens.name=tokens,secrets.serverTls.name=tls,metrics.annotations=true"),
        *("--set", "metrics.serviceMonitor.enabled=true,metrics.tlsConfig.insecureSkipVerify=true"),
        *("--set", "config.auth.metrics_open=false"),
    )
    for kind, document in found.items():
        if kind != "ServiceMonitor":
            validate(document, NEWEST)
    settings = settings_in(found, tmp_path)
    pod = found["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert settings.auth.tokens_file == Path(mounts["api"], "tokens.yaml")
    assert settings.auth.metrics_open is False
    assert settings.http.tls_cert == Path(mounts["server"], "tls.crt")
    assert settings.http.tls_key == Path(mounts["server"], "tls.key")
    secrets = {v["name"]: v["secret"]["secretName"] for v in pod["volumes"] if "secret" in v}
    assert secrets == {"api": "tokens", "server": "tls"}
    probes = [container[name]["httpGet"]["scheme"] for name in container if name.endswith("Probe")]
    assert probes == ["HTTPS"] * 3
    (endpoint,) = found["ServiceMonitor"]["spec"]["endpoints"]
    assert (endpoint["scheme"], endpoint["tlsConfig"]) == ("https", {"insecureSkipVerify": True})
    assert found["Service"]["metadata"]["annotations"]["prometheus.io/scheme"] == "https"


@needs_helm
@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("config.source.bearer_token=x", "use secrets.bearerToken"),
        ("config.source.basic_password=x", "use secrets.basicPassword"),
        ("config.store.url=postgresql://u:p@h/d", "use secrets.storeUrl"),
        ("replicas=2", "more than one needs PostgreSQL"),
        ("replicas=0", "replicas"),
        ("persistance.size=1Gi", "persistance"),
        ("image.pullPolicy=Sometimes", "pullPolicy"),
        ("config.source.url=victoria", "url"),
    ],
)
def test_wrong_values_are_refused_by_name(option: str, says: str) -> None:
    done = helm("--set", option)
    assert done.returncode != 0
    assert says in done.stderr


@needs_helm
def test_replicas_share_a_database_and_no_volume() -> None:
    found = rendered("--set", "secrets.storeUrl.name=db,replicas=2,extraEnv[0].name=A,extraEnv[0].value=b")
    for document in found.values():
        validate(document, NEWEST)
    spec = found["Deployment"]["spec"]
    assert (spec["replicas"], spec["strategy"]["type"]) == (2, "RollingUpdate")
    pod = spec["template"]["spec"]
    assert pod["containers"][0]["env"] == [
        {"name": "ODDNODE_STORE__URL", "valueFrom": {"secretKeyRef": {"name": "db", "key": "url"}}},
        {"name": "A", "value": "b"},
    ]
    assert {"name": "data", "emptyDir": {}} in pod["volumes"]
    assert "PersistentVolumeClaim" not in found
    ports = [port["port"] for rule in found["NetworkPolicy"]["spec"]["egress"] for port in rule["ports"]]
    assert 5432 in ports


@needs_helm
def test_everything_optional_at_once_is_valid(tmp_path: Path) -> None:
    values = {
        "fullnameOverride": "odd",
        "image": {"digest": "sha256:" + "a" * 64},
        "imagePullSecrets": [{"name": "registry"}],
        "extraEnv": [{"name": "ODDNODE_LOG__LEVEL", "value": "debug"}],
        "extraEnvFrom": [{"secretRef": {"name": "more"}}],
        "extraVolumes": [{"name": "catalog", "configMap": {"name": "catalog"}}],
        "extraVolumeMounts": [{"name": "catalog", "mountPath": "/etc/oddnode/catalog"}],
        "persistence": {"existingClaim": "old"},
        "serviceAccount": {"create": False, "name": "mine"},
        "metrics": {
            "annotations": True,
            "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
            "vmServiceScrape": {"enabled": True},
        },
        "networkPolicy": {
            "ingressFrom": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}],
            "egressTo": [{"ipBlock": {"cidr": "10.0.0.0/8"}}],
            "deliveryPorts": [],
            "extraEgress": [{"ports": [{"port": 9093, "protocol": "TCP"}]}],
        },
        "priorityClassName": "high",
        "podAnnotations": {"a": "b"},
        "podLabels": {"team": "sre"},
        "nodeSelector": {"pool": "infra"},
        "tolerations": [{"operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
    }
    path = tmp_path / "values.yaml"
    path.write_text(json.dumps(values), encoding="utf-8")
    found = rendered("--values", str(path))
    assert {"ServiceMonitor", "VMServiceScrape"} <= set(found)
    assert not {"PersistentVolumeClaim", "ServiceAccount"} & set(found)
    for kind, document in found.items():
        if kind not in ("ServiceMonitor", "VMServiceScrape"):
            validate(document, NEWEST)
    pod = found["Deployment"]["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == "mine"
    assert pod["containers"][0]["image"] == "oddnode@sha256:" + "a" * 64
    claims = [v["persistentVolumeClaim"]["claimName"] for v in pod["volumes"] if v["name"] == "data"]
    assert claims == ["old"]
    assert found["Service"]["metadata"]["annotations"]["prometheus.io/path"] == "/metrics"


@needs_helm
def test_a_changed_setting_starts_a_new_pod() -> None:
    def checksum(*options: str) -> str:
        template = rendered(*options)["Deployment"]["spec"]["template"]
        return str(template["metadata"]["annotations"]["checksum/config"])

    assert checksum() == checksum("--set", "service.port=80")
    assert checksum() != checksum("--set", "config.detection.z_threshold=6")


@needs_helm
def test_switches_take_things_away() -> None:
    found = rendered(
        "--set", "persistence.enabled=false,networkPolicy.enabled=false,podDisruptionBudget.enabled=false"
    )
    assert set(found) == {"ConfigMap", "Deployment", "Service", "ServiceAccount"}
    volumes = found["Deployment"]["spec"]["template"]["spec"]["volumes"]
    assert {"name": "data", "emptyDir": {}} in volumes


# --- the image


def instructions() -> list[tuple[str, str]]:
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    text = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in text.splitlines() if line.strip()]


def test_the_image_has_what_the_package_needs_and_nothing_else() -> None:
    sent = [line for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines() if line]
    kept = [line[1:] for line in sent if line.startswith("!")]
    copied = [
        path
        for kind, rest in instructions()
        if kind == "COPY" and "--from" not in rest
        for path in rest.split()[:-1]
    ]
    assert sorted(copied) == sorted(kept)
    for path in copied:
        assert (ROOT / path).exists(), path
    built = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for package in re.findall(r'packages = \["([^]]*)"\]', built)[0].split('", "'):
        assert any(fnmatch(package, path) for path in copied), package


def test_the_image_runs_as_a_number_and_waits_for_signals() -> None:
    found = instructions()
    assert [rest for kind, rest in found if kind == "USER"] == [f"{USER}:{USER}"]
    assert [json.loads(rest) for kind, rest in found if kind == "ENTRYPOINT"] == [["oddnode"]]
    assert "HEALTHCHECK" not in {kind for kind, _ in found}
    assert any("-c constraints.txt" in rest for kind, rest in found if kind == "RUN")


def test_variables_of_the_image_are_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    (variables,) = (rest for kind, rest in instructions() if kind == "ENV")
    named = dict(pair.split("=", 1) for pair in variables.split())
    ours = {name: value for name, value in named.items() if name.startswith("ODDNODE_")}
    assert len(ours) == 2
    for name, value in ours.items():
        monkeypatch.setenv(name, value)
    settings = load_settings()
    assert (settings.http.host, settings.store.path) == ("0.0.0.0", Path("/data/oddnode.db"))


def test_the_image_bounds_what_the_allocator_and_linear_algebra_take() -> None:
    settings = dict(
        item.split("=", 1) for kind, rest in instructions() if kind == "ENV" for item in rest.split()
    )
    assert settings["MALLOC_ARENA_MAX"] == "2"
    assert settings["OPENBLAS_NUM_THREADS"] == "1"
