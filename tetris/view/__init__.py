"""Views of games: text, images, terminal, movies, pages. Begin with `game_view.py`."""
