"""Views of games: scenes, text, images, terminal, movies, the page of a replay."""
