"""Schemas of a registry: by the ids that messages begin with. The registry is an HTTP server of the tests, which speaks
the documented API of Confluent's."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pytest
from cli import run
from exports import files_in, messages_in, problems
from lines import names
from registry_server import registry_of, version
from tls_proxy import TlsProxy

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.schema_registry import RegistrySettings, read_subjects
from zkgroup.config.connection_settings import TlsSettings
from zkgroup.errors import NotFoundError, RefusedError, UnreachableError
from zkgroup.export.destination.run_log import Destination
from zkgroup.export.model.layout import LayoutOptions
from zkgroup.export.run.run_export import PartitionSummary
from zkgroup.sandbox.certificates import make_authority
from zkgroup.sandbox.local_cluster import Sandbox
from zkgroup.sandbox.topic_admin import ProducerRecord, produce
from zkgroup.schemas.field_schema import FieldSchema, FieldSchemas, IncompatibleSchemaError, SchemaError, SchemaFormat

Export = Callable[..., list[PartitionSummary]]


def avro(**fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in fields.items()]}


FIRST, SECOND, THIRD = avro(id="string"), avro(id="int"), avro(id="long", note=["null", "string"])


def frame(number: int, data: bytes) -> bytes:
    """Confluent's wire format."""
    return b"\0" + number.to_bytes(4, "big") + data


def encode_framed(number: int, schema: Any, value: Any) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return frame(number, out.getvalue())


def by(url: str, form: SchemaFormat = "avro", key: bool = False) -> dict[str, Any]:
    schema = FieldSchema(form, "")
    return {
        "layout": LayoutOptions(key=form if key else None, value=form),
        "schemas": FieldSchemas(schema if key else None, schema),
        "registry": RegistrySettings(url),
    }


def test_each_message_is_decoded_by_the_schema_of_its_id(
    in_process: Export, make_topic: Callable[..., str], kafka: KafkaSettings, unique: Callable[[str], str],
    destination: Destination, tmp_path: Path,
) -> None:  # fmt: skip
    """Into the columns of all versions. An old version that does not go with them is left out with a warning. Its
    messages, those of an unknown id and those without one stay with their bytes and the reason."""
    topic, warnings = make_topic(), list[object]()
    values = [
        encode_framed(12, SECOND, {"id": 1}),
        encode_framed(300, THIRD, {"id": 1 << 40, "note": "x"}),
        encode_framed(11, FIRST, {"id": "a"}),
        frame(99, b""),
        b"plain",
        None,
        encode_framed(12, SECOND, {"id": 2}) + b"\0",
    ]
    produce(kafka, topic, [ProducerRecord(value, None, 0) for value in values])
    with registry_of({f"{topic}-value": [version(11, FIRST), version(12, SECOND), version(300, THIRD)]}) as (
        url,
        asked,
    ):
        (summary,) = in_process(unique("group"), topic, on_warning=warnings.append, **by(url))
        in_process(unique("other"), topic, root=tmp_path / "other", **by(f"{url}/"))
    assert (summary.rows, summary.undecodable) == (3, 4)
    rows = messages_in(tmp_path / "out")
    assert [row["value"] for row in rows] == [
        {"id": 1, "note": None}, {"id": 1 << 40, "note": "x"}, None, None, None, None, None,
    ]  # fmt: skip
    assert [row["value_raw"] for row in rows] == [None, None, *values[2:5], None, values[6]]
    left_out = 1, f"{topic}-value", 11, f"{topic}-value.id", "int64", "string"
    reasons = [row["value_error"] for row in rows]
    assert [names(str(reason), *left_out) for reason in reasons] == [reason is reasons[2] for reason in reasons]
    assert [names(str(reason), 99) for reason in reasons] == [reason is reasons[3] for reason in reasons]
    assert [reason is None for reason in reasons] == [True, True, False, False, False, True, False]
    assert len(set(reasons)) == 5  # each has a reason of its own
    assert [line for line in map(str, warnings) if names(line, *left_out)] == [
        line for line in map(str, warnings) if names(line, 11)
    ]
    assert len([line for line in map(str, warnings) if names(line, 11)]) == 1
    assert asked.count(f"/subjects/{topic}-value/versions/3") == 4  # planned twice, by each of two exports
    assert problems(destination) == []


def test_json_and_keys(
    in_process: Export, make_topic: Callable[..., str], kafka: KafkaSettings, unique: Callable[[str], str],
    tmp_path: Path,
) -> None:  # fmt: skip
    """The subjects TOPIC-key and TOPIC-value; a schema of another type than was asked for is refused."""
    topic = make_topic()
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    produce(
        kafka,
        topic,
        [ProducerRecord(frame(1, b'{"n": 5}'), frame(2, b"7"), 0), ProducerRecord(frame(1, b"{"), None, 0)],
    )
    subjects = {
        f"{topic}-value": [version(1, schema, schemaType="JSON")],
        f"{topic}-key": [version(2, {"type": "integer"}, schemaType="JSON")],
    }
    protobuf = {f"{topic}-value": [version(1, "syntax", schemaType="PROTOBUF")]}
    with (
        registry_of(protobuf) as (url, _),
        pytest.raises(SchemaError, match="PROTOBUF"),
    ):
        in_process(unique("group"), topic, **by(url))
    with registry_of(subjects) as (url, _):
        with pytest.raises(SchemaError) as refused:
            in_process(unique("group"), topic, **by(url))
        assert names(str(refused.value), 1, f"{topic}-value", 1, "JSON")
        in_process(unique("group"), topic, **by(url, "json-schema", key=True))
    rows = messages_in(tmp_path / "out")
    assert [(row["key"], row["value"]) for row in rows] == [(7, {"n": 5}), (None, None)]
    assert rows[1]["value_raw"] == frame(1, b"{")


def test_a_newest_schema_that_does_not_fit_is_refused(
    in_process: Export, make_topic: Callable[..., str], kafka: KafkaSettings, unique: Callable[[str], str],
    tmp_path: Path,
) -> None:  # fmt: skip
    """Before anything is read; so is one that refers to other subjects."""
    topic, group = make_topic(), unique("group")
    produce(kafka, topic, [ProducerRecord(encode_framed(12, SECOND, {"id": 1}), None, 0)])
    with registry_of({f"{topic}-value": [version(12, SECOND)]}) as (url, _):
        in_process(group, topic, **by(url))
    produce(kafka, topic, [ProducerRecord(encode_framed(11, FIRST, {"id": "a"}), None, 0)])
    before = files_in(tmp_path / "out")
    for one, error, facts in (
        (version(11, FIRST), IncompatibleSchemaError, ("value.id", "int32", "string")),
        (version(12, SECOND, references=[{"name": "x"}]), SchemaError, (1, f"{topic}-value", 12)),
    ):
        with registry_of({f"{topic}-value": [one]}) as (url, _), pytest.raises(error) as refused:
            in_process(group, topic, **by(url))
        assert names(str(refused.value), *facts)
    assert files_in(tmp_path / "out") == before


def test_live_versions_decide_the_columns(
    in_process: Export, make_topic: Callable[..., str], kafka: KafkaSettings, unique: Callable[[str], str],
    tmp_path: Path,
) -> None:  # fmt: skip
    """A softly deleted version, also the newest, is taken where it changes no type, and else left out with a warning.
    Without a live version the newest deleted one decides."""
    topic, group, warnings = make_topic(), unique("group"), list[object]()
    note, wide = avro(id="int", note=["null", "string"]), avro(id="long")
    values = [
        encode_framed(12, SECOND, {"id": 1}),
        encode_framed(13, note, {"id": 2, "note": "x"}),
        encode_framed(14, wide, {"id": 3}),
        encode_framed(11, FIRST, {"id": "a"}),
    ]
    produce(kafka, topic, [ProducerRecord(value, None, 0) for value in values])
    gone = [version(13, note, deleted=True), version(14, wide, deleted=True), version(11, FIRST, deleted=True)]
    with registry_of({f"{topic}-value": [version(12, SECOND), *gone]}) as (url, _):
        (summary,) = in_process(group, topic, on_warning=warnings.append, **by(url))
    assert (summary.rows, summary.undecodable) == (2, 2)
    values = [row["value"] for row in messages_in(tmp_path / "out")]
    assert values == [{"id": 1, "note": None}, {"id": 2, "note": "x"}, None, None]
    of_subject = [line for line in map(str, warnings) if names(line, f"{topic}-value")]
    left_out = [(3, f"{topic}-value", 14), (4, f"{topic}-value", 11)]
    assert {tuple(names(line, *facts) for facts in left_out) for line in of_subject} == {(True, False), (False, True)}
    with registry_of({f"{topic}-value": gone}) as (url, _):
        in_process(unique("other"), topic, root=tmp_path / "other", **by(url))
    values = [row["value"] for row in messages_in(tmp_path / "other")]
    assert values == [None, None, None, {"id": "a"}]


def test_what_is_wrong_with_a_registry_is_one_error() -> None:
    """No such subject, a user that is refused, no server, no registry."""
    with registry_of({"t-value": [version(1, SECOND)]}, "ops:secret", prefix="/registry") as (url, asked):
        (found,) = read_subjects(RegistrySettings(url, ("ops", "secret")), ["t-value"])
        assert [(one.id, one.version, one.kind) for one in found] == [(1, 1, "AVRO")]
        assert asked[0] == "/registry/subjects/t-value/versions"
        for settings, subject, error, named in (
            (RegistrySettings(url, ("ops", "wrong")), "t-value", RefusedError, "--schema-registry-user"),
            (RegistrySettings(url), "t-value", RefusedError, "--schema-registry-user"),
            (RegistrySettings(url, ("ops", "secret")), "a/b c-value", NotFoundError, "a/b c-value"),
        ):
            with pytest.raises(error) as refused:
                read_subjects(settings, [subject])
            assert names(str(refused.value), url, named)
    with pytest.raises(UnreachableError) as away:
        read_subjects(RegistrySettings(url, timeout=1.0), ["t-value"])
    assert names(str(away.value), url, "--schema-registry")
    assert "secret" not in repr(RegistrySettings(url, ("ops", "secret")))


def test_a_registry_over_tls(tmp_path: Path) -> None:
    """With the authority of ``--ssl-ca-file``; without it the registry is not trusted."""
    authority, trusted = make_authority("an authority"), tmp_path / "ca.pem"
    trusted.write_bytes(authority.pem)
    certificate = authority.issue("registry", ["127.0.0.1"])
    with (
        registry_of({"t-value": [version(1, SECOND)]}) as (url, _),
        TlsProxy(url.removeprefix("http://"), certificate, tmp_path) as proxy,
    ):
        url = f"https://{proxy.address}"
        (found,) = read_subjects(RegistrySettings(url, tls=TlsSettings(str(trusted))), ["t-value"])
        assert [one.id for one in found] == [1]
        with pytest.raises(UnreachableError, match="certificate verify failed"):  # OpenSSL's words
            read_subjects(RegistrySettings(url), ["t-value"])


def test_consume_reads_a_registry_with_a_user(
    cluster: Sandbox, make_topic: Callable[..., str], kafka: KafkaSettings, tmp_path: Path
) -> None:
    """URL and user out of options or variables, the password out of a file; without one, a line says so."""
    topic = make_topic()
    produce(kafka, topic, [ProducerRecord(encode_framed(12, SECOND, {"id": 1}), None, 0)])
    password = tmp_path / "password"
    password.write_text("secret\n")
    password.chmod(0o600)
    options = ["--value-format", "avro", "--value-schema", "registry", "--schema-registry-user", "ops"]
    command = ["-z", cluster.connect, "consume", topic, "--from-beginning", "--until-end", *options]
    with registry_of({f"{topic}-value": [version(12, SECOND)]}, "ops:secret") as (url, _):
        env = {"ZKGROUP_SCHEMA_REGISTRY": url}
        done = run(*command, "--schema-registry-password-file", str(password), env=env)
        assert (done.returncode, done.stderr) == (0, "")
        assert json.loads(done.stdout)["value"] == {"id": 1}
        done = run(*command, env=env)
        assert (done.returncode, done.stdout) == (2, "")
        assert names(done.stderr, "ops", "--schema-registry-password-file", "ZKGROUP_SCHEMA_REGISTRY_PASSWORD")
        done = run(*command, env={**env, "ZKGROUP_SCHEMA_REGISTRY_PASSWORD": "wrong"})
        assert (done.returncode, done.stderr.count("\n")) == (5, 1)
    done = run("-z", cluster.connect, "consume", topic, *options)
    assert (done.returncode, names(done.stderr, "--schema-registry URL")) == (2, True)
