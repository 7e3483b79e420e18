"""Several machines: what TF_CONFIG says of them, and the sentences where it cannot be so."""

import json

import pytest

from pipelines.cli.run_command import run_command
from pipelines.errors import Unavailable, UserError
from pipelines.training import _cluster, tf_config
from pipelines.training._cluster import MachineLost
from pipelines.training.tf_config import Role
from tests.training.loopback import cluster_config, free_addresses

CLUSTER = {"worker": ["10.0.0.1:2222", "10.0.0.2:2222"]}


@pytest.mark.parametrize(
    "text", ["", "{}", cluster_config({"worker": ["localhost:1"]}, "worker", 0)]
)
def test_one_machine_has_no_role(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("TF_CONFIG", text)
    assert tf_config.role() is None


@pytest.mark.parametrize("extra", [{}, {"chief": ["10.0.0.9:2222"]}])
def test_one_chief_and_every_rank_once(
    monkeypatch: pytest.MonkeyPatch, extra: dict[str, list[str]]
) -> None:
    found = []
    cluster = CLUSTER | extra
    for task, addresses in cluster.items():
        for index in range(len(addresses)):
            monkeypatch.setenv("TF_CONFIG", cluster_config(cluster, task, index))
            found.append(tf_config.role())
    roles = [role for role in found if role]
    assert sorted(role.rank for role in roles) == list(range(roles[0].workers))
    assert [role.rank for role in roles if role.chief] == [0]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "one JSON object"),
        ("[1]", "one JSON object"),
        (json.dumps({"cluster": CLUSTER}), 'a task with "type" and "index"'),
        (cluster_config(CLUSTER, "chief", 0), "a task of type worker"),
        (cluster_config(CLUSTER, "worker", 2), "an index of worker from 0 to 1"),
        (cluster_config(CLUSTER, "worker", "0"), "an index of worker from 0 to 1"),
        (cluster_config({"worker": ["a:1", "a:1"]}, "worker", 0), "a different address"),
        (cluster_config({"worker": ["a:1", "b"]}, "worker", 0), '"host:port" for worker'),
        (cluster_config({"worker": ["a:1"], "ps": ["b:1"]}, "ps", 0), "of the tasks chief, worker"),
    ],
)
def test_a_malformed_tf_config_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, text: str, sentence: str
) -> None:
    monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(UserError, match=sentence):
        tf_config.role()


def test_machines_need_tensorflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CONFIG", cluster_config(CLUSTER, "worker", 0))
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    with pytest.raises(UserError, match="Unset KERAS_BACKEND"):
        tf_config.role()


def test_a_machine_that_never_comes_is_named() -> None:
    here, missing = free_addresses(2)
    role = Role("worker", 0, {"worker": (here, missing)})
    with pytest.raises(MachineLost, match=f"no answer from {missing}"):
        _cluster.wait_for_all(role, 0.2)


def test_a_port_that_is_taken_is_one_sentence() -> None:
    (here,) = free_addresses(1)
    role = Role("worker", 0, {"worker": (here, "10.0.0.2:2222")})
    with _cluster.bind_port(role) as taken:
        taken.listen()
        with pytest.raises(Unavailable, match=f"a port that is free.*{here}"):
            _cluster.wait_for_all(role, 0.2)


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (["allconv-digits", "--seeds", "2"], "one recipe, once.*--seeds. Leave"),
        (["gradient-formula"], "one recipe, once.*a claim"),
        (["allconv-digits", "--devices", "2"], "every GPU trains.*devices=2"),
    ],
)
@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.usefixtures("home")
def test_what_machines_cannot_run_is_one_sentence_on_each(
    monkeypatch: pytest.MonkeyPatch, command: list[str], sentence: str, index: int
) -> None:
    monkeypatch.setenv("TF_CONFIG", cluster_config(CLUSTER, "worker", index))
    with pytest.raises(UserError, match=sentence):
        run_command(command[0], [*command[1:], "--scale", "smoke"])
