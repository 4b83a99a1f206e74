"""Planning with a model."""
