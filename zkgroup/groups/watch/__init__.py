"""Groups over time: ``GroupWatch`` reads a group again and again, ``EventDetector`` finds what has happened."""
