"""The settings for Kubernetes make the pod of an executor that Spark's own builder accepts; no cluster looks at it."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from jobs.spark import launch
from storeformat.store.broker_rules import parse_properties

pytestmark = pytest.mark.slow

PROPERTIES = Path(__file__).resolve().parents[2] / "conf" / "kubernetes.properties"
BUILDER = Path(__file__).with_name("ExecutorPod.java")


@pytest.fixture(scope="module")
def settings() -> dict[str, str]:
    """All settings that the file names, those after a # included."""
    lines = [line.removeprefix("#") for line in PROPERTIES.read_text().splitlines()]
    found = dict(line.split(maxsplit=1) for line in lines if line.startswith("spark."))
    assert found.items() > parse_properties(PROPERTIES.read_text()).items(), "some are commented out"
    return found


@pytest.fixture(scope="module")
def pod(settings: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    if shutil.which("javac") is None:
        pytest.skip("a JDK compiles the program that calls Spark's builder")
    chosen = tmp_path_factory.mktemp("kubernetes") / "settings"
    chosen.write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    command = ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{launch.spark_home()}/jars/*", str(BUILDER), str(chosen)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr
    made: dict[str, Any] = json.loads(ran.stdout)
    return made


def test_an_executor_has_cores_and_memory_for_the_heap_and_python(
    pod: dict[str, Any], settings: dict[str, str]
) -> None:
    (container,) = pod["spec"]["containers"]
    assert container["image"] == settings["spark.kubernetes.container.image"]
    assert container["resources"]["requests"] == {"cpu": settings["spark.executor.cores"], "memory": "3584Mi"}
    assert container["resources"]["limits"]["memory"] == "3584Mi"


def test_an_executor_gets_secrets_and_a_volume(pod: dict[str, Any]) -> None:
    (container,) = pod["spec"]["containers"]
    secrets = {
        variable["name"]: variable["valueFrom"]["secretKeyRef"]
        for variable in container["env"]
        if "secretKeyRef" in variable.get("valueFrom", {})
    }
    assert secrets == {
        "AWS_ACCESS_KEY_ID": {"key": "access-key", "name": "SECRET"},
        "AWS_SECRET_ACCESS_KEY": {"key": "secret-key", "name": "SECRET"},
    }
    (volume,) = [volume for volume in pod["spec"]["volumes"] if "persistentVolumeClaim" in volume]
    assert volume["persistentVolumeClaim"]["claimName"] == "CLAIM"
    assert [mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] == volume["name"]] == ["/data"]
