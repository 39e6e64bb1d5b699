"""For ``spark-submit``, which takes a file: ``spark-submit [its options] …/zkgroup/commands/submit.py export …``.

The arguments are those of ``zkgroup``. Master and settings are those that spark-submit was given.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    # Python puts the script's folder first: its modules are parts of a package, and must not be found by their names.
    sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != Path(__file__).resolve().parent]
    from zkgroup.__main__ import main

    main()
