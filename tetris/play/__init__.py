"""Controllers at play on any engine: rollouts, splitting, engines. Begin with `rollouts.py`."""
