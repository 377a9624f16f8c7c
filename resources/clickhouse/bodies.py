"""The bodies of HTTP requests and answers, as streams."""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tableferry.resources.clickhouse.errors import from_driver, translate
from tableferry.resources.contract.settings import ConnectionSettings


class AnswerBody(io.RawIOBase):
    """A streamed answer as a file that raises translated errors.

    The server ends a failing answer without the last HTTP chunk, so that a truncated stream is
    never mistaken for a complete one.
    """

    def __init__(
        self, response: Any, settings: ConnectionSettings, keep_pace: Callable[[int], None]
    ) -> None:
        super().__init__()
        self._response, self._settings, self._keep_pace = response, settings, keep_pace
        self._last: deque[bytes] = deque(maxlen=4)
        """The latest reads, in which an error's text may begin."""

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        try:
            data = bytes(self._response.read(None if size is None or size < 0 else size))
        except Exception as error:
            if not from_driver(error):
                raise
            raise translate(error, self._settings, b"".join(self._last)) from None
        self._last.append(data)
        self._keep_pace(len(data))
        return data

    def close(self) -> None:
        if not self.closed:
            self._response.close()
        super().close()


class RequestBody:
    """Chunks for the HTTP body; keeps the error of their source, which urllib3 would wrap."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = chunks
        self.error: BaseException | None = None

    def __iter__(self) -> Iterator[bytes]:
        try:
            # an empty chunk would mark the end of the body
            yield from (chunk for chunk in self._chunks if len(chunk))
        except GeneratorExit:
            raise
        except BaseException as error:
            self.error = error
            raise
