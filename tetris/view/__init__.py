"""Views of games: scenes, text, images, terminal, movies, the page of a replay. Begin with `game_view.py`."""
