"""Controllers at play on any engine: rollouts, splitting, loading of engines. Begin with `rollouts.py`."""
