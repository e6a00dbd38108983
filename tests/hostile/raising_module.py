"""A plugin's module that raises when it is imported."""

raise OSError("libfast.so.7: cannot open shared object file")
