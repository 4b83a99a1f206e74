"""Records of play: scores, replays, explanations. Begin with `score.py`."""
