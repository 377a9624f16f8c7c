"""The manifests of deploy/kubernetes, and the job that Dagster's launcher makes of its values."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any
from unittest import mock

import dagster as dg
import kubernetes_validate
import pytest
import yaml
from dagster._config import process_config
from dagster._core.code_pointer import ModuleCodePointer
from dagster._core.launcher import LaunchRunContext
from dagster._core.origin import JobPythonOrigin, RepositoryPythonOrigin
from dagster_k8s import K8sRunLauncher
from kubernetes.client import ApiClient

from tableferry.assets.running.processes import POD
from tableferry.pipelines import settings
from tableferry.resources.connecting.names import login_variables, url_variable
from tableferry.resources.connecting.passwords import SUFFIX
from tableferry.sensors.sending import ALERTS, DAGSTER_URL, GONE
from tests.integration.support import homes

ROOT = Path(__file__).resolve().parents[1]
KUBERNETES = ROOT / "deploy" / "kubernetes"
VERSIONS = kubernetes_validate.utils.all_versions()
ENDS = (VERSIONS[0], VERSIONS[-1])
"""The oldest and the newest Kubernetes whose schemas are installed."""
SERVERS = {url_variable(name) + SUFFIX for name in ("postgres", "sqlserver", "clickhouse")}
MANIFESTS = (
    *("namespace.yaml", "network-policy.yaml", "login.yaml", "cronjob.yaml", "identity.yaml"),
)


def documents(name: str) -> list[dict[str, Any]]:
    return [dict(one) for one in yaml.safe_load_all((KUBERNETES / name).read_text())]


def require_valid(document: dict[str, Any]) -> None:
    """Against both ends of the schemas, which know no other fields."""
    for version in ENDS:
        kubernetes_validate.validate(document, version, strict=True)


(VALUES,) = documents("values.yaml")
(CODE_SERVER,) = VALUES["dagster-user-deployments"]["deployments"]
WEBSERVER, DAEMON = VALUES["dagsterWebserver"], VALUES["dagsterDaemon"]
LAUNCHER = VALUES["runLauncher"]["config"]["k8sRunLauncher"]
IMAGE = "{repository}:{tag}".format(**CODE_SERVER["image"])


def snake(name: str) -> str:
    return re.sub("([A-Z])", r"_\1", name).lower()


def launcher(api: Any) -> K8sRunLauncher:
    """Dagster's launcher, with what the chart writes into dagster.yaml.

    Its template writes the first two levels in snake case, and copies the others.
    """
    config = {snake(name): value for name, value in LAUNCHER.items()} | {
        "dagster_home": VALUES["global"]["dagsterHome"],
        "instance_config_map": "tableferry-dagster-instance",
        "postgres_password_secret": VALUES["global"]["postgresqlSecretName"],
        "service_account_name": "tableferry-dagster",
        "job_namespace": "tableferry",
        "run_k8s_config": {snake(name): it for name, it in LAUNCHER["runK8sConfig"].items()},
    }
    checked = process_config(K8sRunLauncher.config_type(), config)
    assert checked.success and checked.value, checked.errors
    with mock.patch("dagster_k8s.launcher.load_kubernetes_config"):
        return K8sRunLauncher(**checked.value, k8s_client_batch_api=api, k8s_client_core_api=api)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The Job that Kubernetes is asked for when a run is launched."""
    api = mock.Mock()
    repository = RepositoryPythonOrigin(
        executable_path="python",
        code_pointer=ModuleCodePointer("tableferry.pipelines.definitions", "defs"),
        container_image=IMAGE,
        entry_point=["dagster"],
        container_context={},  # of includeConfigInLaunchedRuns, which is off
    )
    run = dg.DagsterRun("move_flights", job_code_origin=JobPythonOrigin("move_flights", repository))
    with homes.local_temp(tmp_path_factory.mktemp("dagster")) as instance:
        under_test = launcher(api)
        under_test.register_instance(instance)
        instance.add_run(run)
        under_test.launch_run(LaunchRunContext(run, None))
    (call,) = api.create_namespaced_job.call_args_list
    assert call.kwargs["namespace"] == "tableferry"
    body: dict[str, Any] = ApiClient().sanitize_for_serialization(call.kwargs["body"])
    return body


@pytest.mark.parametrize("name", MANIFESTS)
def test_the_manifests_are_valid_and_their_pods_restricted(name: str) -> None:
    for document in documents(name):
        require_valid(document)
        spec = document.get("spec", {})
        spec = spec.get("jobTemplate", {}).get("spec", spec)
        if "containers" in (pod := spec.get("template", {}).get("spec", {})):
            require_restricted(pod)
            assert pod["automountServiceAccountToken"] is False


def test_an_unknown_field_is_found() -> None:
    _, cron_job = documents("cronjob.yaml")
    cron_job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["hostnme"] = "x"
    with pytest.raises(kubernetes_validate.ValidationError, match="hostnme"):
        require_valid(cron_job)


def require_restricted(pod: dict[str, Any]) -> None:
    """What the level "restricted" of the Pod Security Standards asks for, and more."""
    context = pod["securityContext"]
    assert context["runAsNonRoot"] is True
    assert context["runAsUser"] == context["fsGroup"] > 0
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in pod["containers"]:
        inner = container["securityContext"]
        assert inner["allowPrivilegeEscalation"] is False
        assert inner["capabilities"] == {"drop": ["ALL"]}
        assert inner["readOnlyRootFilesystem"] is True
    kinds = {kind for volume in pod["volumes"] for kind in volume.keys() - {"name"}}
    assert kinds <= {"configMap", "secret", "emptyDir", "persistentVolumeClaim"}


def test_a_launched_run_may_read_its_secrets_and_little_else(job: dict[str, Any]) -> None:
    require_valid(job)
    pod = job["spec"]["template"]["spec"]
    require_restricted(pod)
    assert pod["securityContext"]["runAsUser"] == image_user()
    assert pod["automountServiceAccountToken"] is False
    (container,) = pod["containers"]
    assert container["image"] == IMAGE
    assert {"/tmp", "/opt/dagster"} <= require_complete(container, pod)
    (password,) = [one for one in container["env"] if one["name"] == "DAGSTER_PG_PASSWORD"]
    assert password["valueFrom"]["secretKeyRef"]["name"] == "tableferry-dagster-storage"


def test_a_launched_run_has_resources_of_its_own(job: dict[str, Any]) -> None:
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["resources"] == {
        "requests": {"cpu": "1", "memory": "1Gi"},
        "limits": {"memory": "2Gi"},
    }
    assert container["resources"] != CODE_SERVER["resources"]
    assert job["spec"]["backoffLimit"] == 0
    assert job["spec"]["ttlSecondsAfterFinished"] > 0


def test_the_pod_of_a_cron_job_is_complete() -> None:
    claim, cron_job = documents("cronjob.yaml")
    assert claim["spec"]["accessModes"] == ["ReadWriteOncePod"]
    assert cron_job["spec"]["concurrencyPolicy"] == "Forbid"
    pod = cron_job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsUser"] == image_user()
    (container,) = pod["containers"]
    assert {"/tmp", "/opt/dagster"} <= require_complete(container, pod)


def require_complete(container: dict[str, Any], pod: dict[str, Any]) -> set[str]:
    """Every server by its file, every path on a mount, every mount a volume; returns the mounts."""
    env = {one["name"]: one.get("value") or one["valueFrom"] for one in container["env"]}
    assert {*SERVERS, settings.TRANSFERS, "TABLEFERRY_ARTIFACTS", "DAGSTER_HOME"} <= set(env)
    assert env[POD] == {"fieldRef": {"fieldPath": "metadata.uid"}}
    places = {one["mountPath"] for one in container["volumeMounts"]}
    for value in env.values():
        if isinstance(value, str) and value.startswith("/"):
            assert any(value == place or value.startswith(f"{place}/") for place in places), value
        assert "://" not in str(value)
    volumes = {one["name"]: one for one in pod["volumes"]}
    assert {one["name"] for one in container["volumeMounts"]} <= set(volumes)
    assert volumes["secrets"]["secret"]["defaultMode"] == 0o440, "for root and fsGroup"
    return places


def image_user() -> int:
    """The numeric user of the image."""
    dockerfile = (ROOT / "docker/Dockerfile").read_text()
    return int(re.findall(r"^USER (\d+)$", dockerfile, re.MULTILINE)[-1])


@pytest.mark.parametrize(
    "part", [CODE_SERVER, WEBSERVER, DAEMON], ids=["code server", "webserver", "daemon"]
)
def test_what_the_chart_deploys_is_restricted(part: dict[str, Any]) -> None:
    """The chart copies these parts as they are."""
    pod = {
        "securityContext": part["podSecurityContext"],
        "containers": [
            {
                "name": "dagster",
                "image": "{repository}:{tag}".format(**part["image"]),
                "volumeMounts": part["volumeMounts"],
                "securityContext": part["securityContext"],
                "resources": part["resources"],
                "env": part.get("env", []),
                **{
                    name: {key: value for key, value in part[name].items() if key != "enabled"}
                    for name in ("readinessProbe", "livenessProbe", "startupProbe")
                    if name in part
                },
            }
        ],
        "volumes": part["volumes"],
    }
    require_valid({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": pod})
    require_restricted(pod)
    assert {one["name"] for one in part["volumeMounts"]} <= {one["name"] for one in part["volumes"]}
    places = {one["mountPath"] for one in part["volumeMounts"]}
    authority = Path(VALUES["postgresql"]["postgresqlParams"]["sslrootcert"])
    assert {"/tmp", VALUES["global"]["dagsterHome"], str(authority.parent)} <= places


def test_dagsters_storage_is_encrypted_and_verified() -> None:
    params = VALUES["postgresql"]["postgresqlParams"]
    assert params["sslmode"] == "verify-full"
    assert Path(params["sslrootcert"]).name == "ca.crt"


def test_the_code_server_reloads_alerts_and_launches_nothing() -> None:
    assert "dagsterApiGrpcArgs" not in CODE_SERVER, "it cannot reload"
    assert CODE_SERVER["codeServerArgs"] == ["--module-name", "tableferry.pipelines.definitions"]
    assert CODE_SERVER["includeConfigInLaunchedRuns"] == {"enabled": False}
    env = {one["name"]: one for one in CODE_SERVER["env"]}
    for name in (ALERTS, *GONE):
        secret = env[name]["valueFrom"]["secretKeyRef"]
        assert secret["optional"] is True and secret["name"] == "tableferry-alerts"
    assert DAGSTER_URL in env
    for one in LAUNCHER["runK8sConfig"]["containerConfig"]["env"]:
        assert env[one["name"]] == one, "the same as for runs"
    for probe in ("startupProbe", "readinessProbe"):
        _, program, _, port = CODE_SERVER[probe]["exec"]["command"]
        assert (ROOT / "docker" / Path(program).name).exists()
        assert port == str(CODE_SERVER["port"])


def test_ticks_go_side_by_side_and_runs_that_ask_for_it_are_tried_again() -> None:
    for ticks in ("sensors", "schedules"):
        assert DAEMON[ticks] == {"useThreads": True, "numWorkers": 4}
    assert DAEMON["runRetries"] == {"enabled": True, "maxRetries": 0}


def test_commands_in_the_daemons_pod_know_the_transfers() -> None:
    (given,) = DAEMON["env"]
    assert given["name"] == settings.TRANSFERS
    assert given["value"] in {one["mountPath"] for one in DAEMON["volumeMounts"]}
    assert "secrets" not in {one["name"] for one in DAEMON["volumes"]}


def test_the_webserver_needs_no_privileged_port() -> None:
    assert WEBSERVER["service"]["port"] == WEBSERVER["readinessProbe"]["httpGet"]["port"] > 1023


def test_dagsters_settings_are_those_of_the_other_deployments() -> None:
    compose = yaml.safe_load((ROOT / "docker/dagster.yaml").read_text())
    retention = VALUES["retention"]
    assert retention["enabled"]
    for kind in ("schedule", "sensor"):
        theirs = compose["retention"][kind]["purge_after_days"]
        ours = retention[kind]["purgeAfterDays"]
        for state in ("skipped", "failure", "success"):
            assert ours[state] == (theirs if isinstance(theirs, int) else theirs[state])
    assert VALUES["concurrency"]["pools"] == {"granularity": "op", "defaultLimit": 1}
    assert (
        VALUES["pythonLogs"]["managedPythonLoggers"]
        == compose["python_logs"]["managed_python_loggers"]
    )
    monitoring = DAEMON["runMonitoring"]
    assert monitoring["maxRuntimeSeconds"] == compose["run_monitoring"]["max_runtime_seconds"]


def test_policies_name_the_labels_that_pods_have(job: dict[str, Any]) -> None:
    """An allowance for labels that no pod has would leave the pods cut off."""
    labels = job["spec"]["template"]["metadata"]["labels"]
    cron_job = documents("cronjob.yaml")[1]["spec"]["jobTemplate"]["spec"]["template"]["metadata"]
    servers = ("tableferry/servers", LAUNCHER["labels"]["tableferry/servers"])
    for pod in (labels, cron_job["labels"], CODE_SERVER["labels"]):
        assert servers in pod.items()
    policies = {one["metadata"]["name"]: one["spec"] for one in documents("network-policy.yaml")}
    assert policies["tableferry-default"]["podSelector"] == {}
    assert policies["tableferry-default"]["policyTypes"] == ["Ingress", "Egress"]
    assert policies["tableferry-servers"]["podSelector"] == {"matchLabels": dict([servers])}
    (login,) = policies["tableferry-webserver"]["ingress"][0]["from"]
    (deployment, service, ingress, _) = documents("login.yaml")
    labelled = deployment["spec"]["template"]["metadata"]["labels"]
    assert login["podSelector"]["matchLabels"] == labelled == service["spec"]["selector"]
    (rule,) = ingress["spec"]["rules"]
    (path,) = rule["http"]["paths"]
    assert path["backend"]["service"]["name"] == service["metadata"]["name"]
    upstream = f"http://tableferry-dagster-webserver:{WEBSERVER['service']['port']}"
    assert (
        f"--upstream={upstream}" in deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    )


def test_the_namespace_enforces_what_the_pods_keep() -> None:
    namespace, _ = documents("namespace.yaml")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


def test_the_chart_is_of_the_dagster_that_is_installed() -> None:
    from importlib.metadata import version

    for path in (KUBERNETES / "values.yaml", ROOT / "docs" / "deployment.md"):
        found = set(re.findall(r"--version (\S+)", path.read_text()))
        assert found == {version("dagster")}, path


def test_code_server_and_runs_log_in_without_passwords_by_one_identity(
    job: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    account, variables, policy = documents("identity.yaml")
    name = account["metadata"]["name"]
    _, plain = documents("namespace.yaml")
    assert (plain["kind"], plain["metadata"]["name"]) == ("ServiceAccount", name)
    assert CODE_SERVER["serviceAccount"] == {"name": name, "create": False}
    pod = job["spec"]["template"]
    assert pod["spec"]["serviceAccountName"] == name
    reads = {"name": variables["metadata"]["name"], "optional": True}
    (container,) = pod["spec"]["containers"]
    assert {"configMapRef": reads} in container["envFrom"]
    assert CODE_SERVER["envConfigMaps"] == [reads]
    selector = policy["spec"]["podSelector"]["matchLabels"]
    for labels in (CODE_SERVER["labels"], pod["metadata"]["labels"]):
        assert selector.items() <= labels.items()
        assert labels["azure.workload.identity/use"] == "true"
    for variable, value in variables["data"].items():
        monkeypatch.setenv(variable, value)
    assert set(login_variables("sqlserver").values()) | set(
        login_variables("postgres").values()
    ) == set(variables["data"])
    program, option, code = shlex.split(variables["data"]["TABLEFERRY_POSTGRES_PASSWORD_COMMAND"])
    assert (program, option) == ("python", "-c")
    names = {"Identity": mock.Mock(), "print": mock.Mock()}
    imported, _, said = code.partition(";")
    exec(imported, {})  # the package has it
    exec(said.strip(), names)
    names["Identity"]().get_token.assert_called_once_with(
        "https://ossrdbms-aad.database.windows.net/.default"
    )
