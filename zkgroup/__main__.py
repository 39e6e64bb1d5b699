"""``python -m zkgroup``."""

from zkgroup.commands import app

if __name__ == "__main__":
    app(prog_name="zkgroup")
