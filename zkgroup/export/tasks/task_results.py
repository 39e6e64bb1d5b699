"""Answers of tasks while their job runs: executors load this module, and none of ``spark``."""

from __future__ import annotations

from typing import Any

from pyspark.accumulators import AccumulatorParam

from zkgroup.export.tasks.task_data import Answer


class Answers(AccumulatorParam[Any]):
    """Lists of answers, put together as tasks end."""

    def zero(self, value: list[Answer]) -> list[Answer]:
        return []

    def addInPlace(self, value1: list[Answer], value2: list[Answer]) -> list[Answer]:
        return value1 + value2
