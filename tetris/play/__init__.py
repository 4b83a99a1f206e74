"""Controllers at play on any engine: rollouts, splitting, the loading of engines. Begin with `rollouts.py`."""
