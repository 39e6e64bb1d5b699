"""The work of Spark's executors. With ``model`` and ``stores`` this is all of the export that travels to them."""
