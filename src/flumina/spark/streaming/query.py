"""Handle of a streaming query: its progress, its errors, and how to stop it."""

from __future__ import annotations

import threading
import time
from typing import Any, cast

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery as SparkQuery

from flumina.checkpoint.store.checkpoint_owner import in_use
from flumina.errors import UsageError
from flumina.plan.tree import Plan
from flumina.spark.gang import explained
from flumina.spark.streaming.batch_engine import SparkEngine
from flumina.spark.streaming.ingest import UnitedStreams
from flumina.streaming.batches import Batches


class StreamingQuery:
    """Handle of a streaming query, with the methods of Spark's own.

    Progress and errors are those of Flumina; ``spark_query`` is Spark's handle.
    """

    def __init__(self, batches: Batches, united: UnitedStreams, engine: SparkEngine, *, drain: bool) -> None:
        self.batches, self.united, self.engine, self.drain = batches, united, engine, drain
        self.spark_query: SparkQuery | None = None
        self._started = threading.Event()
        self._registered = False
        self._error: BaseException | None = None
        self._closing: threading.Thread | None = None
        self._stopping = False
        self._deliberate = False
        """Whether the query has ended because of :meth:`stop`, even if Spark reports an error."""
        self._working = threading.Lock()
        """Held while a batch is processed."""
        self._worker: int | None = None

    # -- what Spark calls -----------------------------------------------------------------------------------------

    def batch(self, frame: DataFrame, number: int) -> None:
        """Process one batch."""
        self._started.wait()
        with self._working:
            if self._stopping:  # Spark would commit the batch if this returned
                self._deliberate = True
                raise UsageError("STOPPED", f"the query was stopped before batch {number}")
            self._worker = threading.get_ident()
            try:
                self.engine.spark = frame.sparkSession
                if not self._registered:
                    self.batches.log.register_query(self._query.id)
                    self._registered = True
                self.batches.process(number, lambda validators: self.united.gather(frame, validators))
            except BaseException as error:
                self._error = error
                raise
            finally:
                self._worker = None

    def began(self, query: SparkQuery, session: SparkSession) -> None:
        """Set Spark's handle once Spark has started the query."""
        self.spark_query = query
        self._started.set()
        if self.drain:
            self._closing = threading.Thread(target=self._close, args=(session,), name="flumina-close", daemon=True)
            self._closing.start()

    def _close(self, session: SparkSession) -> None:
        """Process buffered rows, once Spark has processed all available rows."""
        assert self.spark_query is not None
        try:
            self.spark_query.awaitTermination()
        except PySparkException:
            return  # exception() reports it
        if self._stopping:
            return  # Spark may not have read all available rows
        try:
            self.engine.spark = session
            self.batches.close(self.united.nothing)
        except BaseException as error:  # noqa: BLE001 -- awaitTermination() raises it
            self._error = error

    # -- what the user calls --------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Return the name of the query in Spark's UI."""
        return str(self._query.name)

    @property
    def id(self) -> str:
        """Return the id of the query, which stays the same over restarts from one checkpoint."""
        return str(self._query.id)

    @property
    def isActive(self) -> bool:  # noqa: N802 -- as Spark's handle has it
        """Return whether the query is running."""
        closing = self._closing is not None and self._closing.is_alive()
        return bool(self._query.isActive) or closing

    @property
    def plan(self) -> Plan | None:
        """Return the plan of the last batch that had events; None before it."""
        return self.batches.planner.plan

    @property
    def lastProgress(self) -> dict[str, Any] | None:  # noqa: N802
        """Return the progress of the last batch; None before the first one."""
        recent = self.batches.progress.recent
        return recent[-1] if recent else None

    @property
    def recentProgress(self) -> list[dict[str, Any]]:  # noqa: N802
        """Return the progress of the last hundred batches, the newest last."""
        return list(self.batches.progress.recent)

    @property
    def status(self) -> dict[str, Any]:
        """Return Spark's status, the number of buffered rows, and the streams for which they wait."""
        last = self.lastProgress or {}
        buffered = sum(last["buffered"].values()) if last else self.batches.waiting
        held = {"heldUpBy": last.get("heldUpBy", []), "batchesWaiting": last.get("batchesWaiting", 0)}
        return {**self._query.status, "buffered": buffered, **held}

    def processAllAvailable(self) -> None:  # noqa: N802
        """Wait until all available rows have been in a batch; raises the error that ended the query."""
        self._call(self._query.processAllAvailable)

    def awaitTermination(self, timeout: float | None = None) -> bool:  # noqa: N802
        """Wait for the end of the query, at most ``timeout`` seconds, and return whether it has ended.

        Raises the error that ended the query, if any.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        ended = self._call(lambda: self._query.awaitTermination(cast("int | None", timeout)))
        if self._closing is not None:
            self._closing.join(None if deadline is None else max(0.0, deadline - time.monotonic()))
            ended = not self._closing.is_alive()
            if ended and self._error is not None:
                raise _translate(self._error, self._checkpoint)
        return timeout is None or bool(ended)

    def stop(self) -> None:
        """End the query after the current batch, and wait for that; the end is not an error.

        Buffered rows are processed after the next start. A sink may call this method, too, which then returns at once.
        Spark's own handle does not wait, but aborts the batch, which is retried at the next start; a query with
        ``drain=True`` would take that for the end of input.
        """
        self._stopping = True
        if self._worker == threading.get_ident():
            threading.Thread(target=self._end, name="flumina-stop", daemon=True).start()
        else:
            self._end()

    def _end(self) -> None:
        """Stop Spark's query once the current batch is done; no other batch starts."""
        with self._working:
            self._deliberate = self._deliberate or self._query.exception() is None
        self._query.stop()
        if self._closing is not None:
            self._closing.join()

    def exception(self) -> BaseException | None:
        """Return the error that ended the query; None if there is none."""
        found = self._error
        if found is None and not self._deliberate:
            found = self._query.exception()
        return None if found is None else _translate(found, self._checkpoint)

    @property
    def _checkpoint(self) -> str:
        return self.batches.store.folder.path

    @property
    def _query(self) -> SparkQuery:
        assert self.spark_query is not None, "start() has set it"
        return self.spark_query

    def _call(self, wait: Any) -> Any:  # noqa: ANN401 -- whatever Spark's method returns
        """Call a method of Spark's handle; raises the error that ended the query as it was raised in the batch."""
        try:
            return wait()
        except PySparkException as error:
            if self._error is None and self._deliberate:
                return True
            raise _translate(error if self._error is None else self._error, self._checkpoint) from None

    def __repr__(self) -> str:
        state = "active" if self.isActive else "ended"
        return f"<StreamingQuery {self.name!r}, {state}, {len(self.recentProgress)} batches>"


def _translate(error: BaseException, checkpoint: str) -> BaseException:
    """Return an error of Spark as one of Flumina's, in short; other errors as they are."""
    if not isinstance(error, PySparkException | Py4JError):
        return error
    if "Multiple streaming queries are concurrently using" in str(error):
        return in_use(checkpoint, "another query has taken over")
    return explained(error)
