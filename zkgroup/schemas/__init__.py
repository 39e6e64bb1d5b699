"""Schemas of keys and values: Avro and JSON Schema → Arrow types, and bytes → columns of these types.

``field_schema`` (the schema of a key or a value: plain data), ``column_types`` (types that hold old and new values;
values as JSON; pure), ``avro_schema`` and ``json_schema`` (a schema → its type, and how a value becomes one of it;
pure), ``field_decoder`` (bytes → columns; a registry's subjects → one column).
"""
