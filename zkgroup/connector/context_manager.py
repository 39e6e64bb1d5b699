"""Members as context managers."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from zkgroup.errors import ZkgroupError

log = logging.getLogger(__name__)


class Closing(ABC):
    """Closed at the end of its block. An error of ``close`` never hides the one that ended the block."""

    @abstractmethod
    def close(self) -> None:
        """Leave. Raises ``ZkgroupError``."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except ZkgroupError as late:
            if error is None:
                raise
            if error is not late:
                log.warning("while leaving: %s", late)
