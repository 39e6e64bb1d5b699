"""Files of offsets: recognised, read, written.

``files`` with ``line_formats`` and ``json_formats`` (one format each) and ``entries`` (what they hold);
``whole_file`` (whole or not at all), ``checkpoint_series`` (offset files in a folder).
"""
