"""What is kept of play: scores, played games, replays, explanations. Begin with `score.py`."""
