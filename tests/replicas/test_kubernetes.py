"""deploy/kubernetes.yaml: valid by the schemas of Kubernetes, and in step with the settings and the other files."""

import copy
import re

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml

from replicas.fleet import DEPLOY
from workflowlookup.settings import SETTINGS
from workflowlookup.transport.http.server import END_SECONDS

VERSIONS = ("1.30", kubernetes_validate.latest_version())
RESOURCES = {each["kind"]: each for each in yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())}
POD = RESOURCES["Deployment"]["spec"]["template"]["spec"]
CONTAINER = POD["containers"][0]
ENVIRONMENT = {each["name"]: each.get("value") for each in CONTAINER["env"]}
ROWS = {setting.name: setting for setting in SETTINGS}


def seconds(name: str) -> float:
    return float(ENVIRONMENT[f"WORKFLOWLOOKUP_{name.upper()}_SECONDS"])


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", RESOURCES)
def test_each_resource_is_valid(kind: str, version: str) -> None:
    kubernetes_validate.validate(RESOURCES[kind], version, strict=True)


def test_a_misspelt_field_would_be_noticed() -> None:
    wrong = copy.deepcopy(RESOURCES["Deployment"])
    wrong["spec"]["template"]["spec"]["terminationGracePeriod"] = 40

    with pytest.raises(kubernetes_validate.ValidationError, match="terminationGracePeriod"):
        kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


def test_the_environment_names_settings_with_values_that_they_take() -> None:
    for variable, value in ENVIRONMENT.items():
        if variable.startswith("WORKFLOWLOOKUP_") and value is not None:
            ROWS[variable.removeprefix("WORKFLOWLOOKUP_").lower()].parse(value)


def test_a_pod_is_not_killed_before_it_has_stopped() -> None:
    assert POD["terminationGracePeriodSeconds"] > seconds("stop_delay") + seconds("drain") + END_SECONDS


def test_a_stopping_pod_serves_until_everybody_has_noticed() -> None:
    """The probe must fail, and the rest of the cluster hear of it."""
    probe = CONTAINER["readinessProbe"]

    assert seconds("stop_delay") >= 2 * probe["failureThreshold"] * (probe["periodSeconds"] + probe["timeoutSeconds"])


def test_only_readiness_depends_on_the_database() -> None:
    paths = {name: CONTAINER[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")}

    assert paths == {"startup": "/healthz", "liveness": "/healthz", "readiness": "/readyz"}


def test_the_database_is_verified_and_its_password_is_in_a_secret() -> None:
    journal = next(each for each in CONTAINER["env"] if each["name"] == "WORKFLOWLOOKUP_JOURNAL")

    assert ENVIRONMENT["PGSSLMODE"] == "verify-full"
    assert journal["valueFrom"]["secretKeyRef"]["name"] == "workflowlookup-database"


def test_image_compose_and_nginx_say_the_same() -> None:
    containerfile = (DEPLOY / "Containerfile").read_text()
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["replica-1"]
    context = POD["securityContext"]
    megabytes = ROWS["max_message_bytes"].default >> 20

    assert f"USER {context['runAsUser']}:{context['runAsGroup']}" in containerfile
    assert f"EXPOSE {CONTAINER['ports'][0]['containerPort']}" in containerfile
    assert CONTAINER["resources"]["limits"]["memory"] == compose["mem_limit"].replace("m", "Mi")
    assert seconds("drain") == float(compose["environment"]["WORKFLOWLOOKUP_DRAIN_SECONDS"])
    assert RESOURCES["Ingress"]["metadata"]["annotations"]["nginx.org/client-max-body-size"] == f"{megabytes}m"
    assert re.findall(r"client_max_body_size (\d+)m;", (DEPLOY / "nginx.conf").read_text()) == [str(megabytes)]


def test_everything_selects_the_same_pods_and_one_may_be_away() -> None:
    labels = RESOURCES["Deployment"]["spec"]["template"]["metadata"]["labels"]
    selectors = [
        RESOURCES["Deployment"]["spec"]["selector"]["matchLabels"],
        RESOURCES["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
        RESOURCES["Service"]["spec"]["selector"],
    ]

    assert selectors == [labels] * 3
    assert RESOURCES["PodDisruptionBudget"]["spec"]["maxUnavailable"] == 1
    assert RESOURCES["Deployment"]["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0


def test_the_ingress_has_a_certificate_for_the_name_that_the_server_answers_to() -> None:
    ingress = RESOURCES["Ingress"]["spec"]
    host = ENVIRONMENT["WORKFLOWLOOKUP_ALLOWED_HOSTS"]

    assert ([rule["host"] for rule in ingress["rules"]], ingress["tls"][0]["hosts"]) == ([host], [host])


def test_the_files_of_the_account_outlive_a_pod_and_are_the_same_in_all() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["replica-1"]
    volume = next(each for each in POD["volumes"] if "persistentVolumeClaim" in each)
    (mount,) = (each for each in CONTAINER["volumeMounts"] if each["name"] == volume["name"])
    claim = RESOURCES["PersistentVolumeClaim"]

    assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    assert (f"account:{mount['mountPath']}", mount.get("readOnly")) == (compose["volumes"][1], None)
    assert f"--home-dir {mount['mountPath']}" in (DEPLOY / "Containerfile").read_text()


def test_the_container_can_write_only_where_a_volume_is() -> None:
    context = CONTAINER["securityContext"]
    mounts = {each["mountPath"] for each in CONTAINER["volumeMounts"] if not each.get("readOnly")}

    assert (context["readOnlyRootFilesystem"], POD["securityContext"]["runAsNonRoot"]) == (True, True)
    assert mounts == {"/tmp", "/var/lib/workflowlookup"}
