"""Write Parquet files of results that are read with exactly the declared types."""

from __future__ import annotations

import zlib
from base64 import b64encode
from contextlib import suppress

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from flumina.storage.filesystem import storage_errors


class ParquetFile:
    """A Parquet file being written; ``written`` are the columns as given, ``read`` as readers see them."""

    def __init__(
        self,
        filesystem: fs.FileSystem,
        path: str,
        written: pa.Schema,
        read: pa.Schema,
        compression: str,
        *,
        checked: bool = False,
    ) -> None:
        self.path, self.rows, self.size = path, 0, 0
        # Numbers seldom repeat enough for a dictionary. Bounds of texts cost a third of the time, and readers can skip
        # a row group by its dictionary as well.
        texts = [f.name for f in written if _is_text(f.type)]
        with storage_errors("write", path):
            self._stream = filesystem.open_output_stream(path)
            self._checked = _Checked(self._stream) if checked else None
            if self._checked is not None:
                self._stream = pa.PythonFile(self._checked, mode="w")
            self._writer = pq.ParquetWriter(
                self._stream,
                written,
                compression=compression,
                use_dictionary=texts,
                write_statistics=[f.name for f in written if f.name not in texts],
                store_schema=False,
            )
        encoded = b64encode(read.serialize().to_pybytes()).decode()
        self._writer.add_key_value_metadata({"ARROW:schema": encoded})

    def write(self, table: pa.Table) -> None:
        """Add rows, as one row group."""
        with storage_errors("write", self.path):
            self._writer.write_table(table, row_group_size=max(1, len(table)))
        self.rows += len(table)

    def close(self) -> None:
        """Finish the file."""
        with storage_errors("write", self.path):
            self._writer.close()
            self.size = self._stream.tell()
            self._stream.close()

    @property
    def crc(self) -> int | None:
        """The CRC-32 of all bytes written, if the file is ``checked``."""
        return self._checked.crc if self._checked is not None else None

    def abandon(self) -> None:
        """Close the file in any state; never raises."""
        for part in (self._writer, self._stream):
            with suppress(OSError, pa.ArrowException):
                part.close()


class _Checked:
    """A file that computes the CRC-32 of the bytes written to it."""

    def __init__(self, stream: pa.NativeFile) -> None:
        self._stream, self.crc, self.closed = stream, 0, False

    def write(self, data: bytes) -> int:
        """Write bytes and add them to the checksum."""
        self.crc = zlib.crc32(data, self.crc)
        self._stream.write(data)
        return len(data)

    def tell(self) -> int:
        """Return the number of bytes written."""
        return int(self._stream.tell())

    def flush(self) -> None:
        """Flush the underlying stream."""
        self._stream.flush()

    def close(self) -> None:
        """Finish the file."""
        self.closed = True
        self._stream.close()


def _is_text(type_: pa.DataType) -> bool:
    return any(kind(type_) for kind in (pa.types.is_string, pa.types.is_binary, pa.types.is_dictionary))
