"""Pipeline files: how they are read, checked against the steps, and described for editors and people."""
