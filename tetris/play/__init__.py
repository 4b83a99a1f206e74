"""Controllers at play on any engine: rollouts, splitting, the engines and their loading.

Begin with `rollouts.py`.
"""
