"""Options of ``zkgroup export`` about its files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer

from ._completion_values import complete_folders

if TYPE_CHECKING:
    from zkgroup.export.model.layout import LayoutWish

_PANEL = "Files and folders"
# As in zkgroup.export.model.layout, which --help does without.
_Format: TypeAlias = Literal["bytes", "text", "json"]

PartitionBy: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--partition-by",
        metavar="PARTS",
        help="partition, date, hour or none, with commas.",
        rich_help_panel=_PANEL,
        show_default=False,
        autocompletion=complete_folders,
    ),
]
TimeZone: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--time-zone",
        metavar="ZONE",
        help="Zone of date and hour: Europe/Berlin.",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
KeyFormat: TypeAlias = Annotated[
    _Format | None,
    typer.Option(
        "--key-format",
        metavar="FORMAT",
        help="bytes, text or json.",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
ValueFormat: TypeAlias = Annotated[
    _Format | None,
    typer.Option(
        "--value-format",
        metavar="FORMAT",
        help="bytes, text or json; others: value_raw.",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
CompressionOption: TypeAlias = Annotated[
    str,
    typer.Option(
        "--compression",
        metavar="zstd|snappy|gzip|lz4|none[:LEVEL]",
        help="Codec of the files.",
        rich_help_panel=_PANEL,
    ),
]
TargetFileSize: TypeAlias = Annotated[
    str,
    typer.Option(
        "--target-file-size",
        metavar="SIZE",
        help="Size of a file, about.",
        rich_help_panel=_PANEL,
    ),
]


def layout_wish(
    by: str | None, zone: str | None, key: _Format | None, value: _Format | None, compression: str
) -> LayoutWish:
    """The layout options. Raises ``UsageError``, also for an unknown compression."""
    from zkgroup.export.model.layout import LayoutWish, parse_compression, parse_parts, parse_zone

    parse_compression(compression)
    return LayoutWish(None if by is None else parse_parts(by), None if zone is None else parse_zone(zone), key, value)
