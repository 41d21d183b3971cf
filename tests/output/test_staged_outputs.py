"""The description of a run's outputs."""

import pyarrow as pa
import pytest

from flumina.errors import UsageError
from flumina.model.schema import Schema
from flumina.storage.output_directory import OutputDirectory
from tests.engine.writing import ONE, STREAMS, make


def test_results_have_the_declared_columns_then_those_of_the_event() -> None:
    for type_ in (pa.int64(), pa.timestamp("us"), pa.timestamp("us", tz="UTC")):
        assert make(None, ts_type=type_).final("output") == pa.schema(
            [
                pa.field("name", pa.string()),
                pa.field("n", pa.int64()),
                pa.field("event_ts", type_, nullable=False),
                pa.field("event_stream", pa.string(), nullable=False),
            ]
        )


@pytest.mark.parametrize("name", ["event_ts", "event_stream", "Event_TS", "EVENT_STREAM"])
def test_columns_that_every_output_gets_can_not_be_declared(name: str) -> None:
    with pytest.raises(UsageError, match="RESERVED_COLUMN"):
        make(None, {"output": Schema.parse(f"{name} long")})


@pytest.mark.parametrize("run", ["", "a/b", ".. /", "ü"])
def test_the_id_of_a_run_is_a_part_of_names(run: str) -> None:
    with pytest.raises(UsageError, match="RUN_ID"):
        make(None, run=run)


def test_a_location_belongs_to_its_run() -> None:
    with pytest.raises(UsageError, match="RUN_ID"):
        make(OutputDirectory.of("out", "other"))


def test_only_a_sole_unnamed_output_has_no_folder() -> None:
    assert make(None).folder("output") == ""
    assert make(None, {**ONE, "more": ONE["output"]}).folder("output") == "output/"
    assert make(None, {"named": ONE["output"]}).folder("named") == "named/"


def test_streams_are_encoded_by_rank() -> None:
    assert make(None).stream_names.to_pylist() == list(STREAMS)
