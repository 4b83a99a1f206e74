"""Games as people see them: scenes, text, images, terminal, movies, the page of a replay."""
