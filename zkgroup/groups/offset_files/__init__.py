"""Files of offsets: ``offset_file`` recognises, reads and writes them; each format has a reader and a writer."""
