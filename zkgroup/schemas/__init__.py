"""Schemas of keys and values: Avro and JSON Schema → Arrow types, and bytes → columns of these types.

``field_schema`` (the schema of a key or a value: plain data), ``column_types`` (types that hold old and new values;
pure), ``avro_schema`` and ``json_schema`` (a schema → its type, and how a value becomes one of it; pure),
``avro_buffers`` (Avro by a C extension), ``field_decoder`` (bytes → columns), ``registered_schemas`` (a registry's
subjects → one column; pure), ``json_values`` (columns → JSON).
"""
