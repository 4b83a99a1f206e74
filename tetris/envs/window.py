"""The window of ``render_mode="human"``. Needs pygame, which is imported when the window opens."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt


class Window:
    """A window that shows frames.

    Raises:
        gymnasium.error.DependencyNotInstalled: If pygame is not installed.
    """

    def __init__(self, title: str) -> None:
        """Open no window yet: the first frame gives its size."""
        try:
            import pygame
        except ImportError:
            raise gymnasium.error.DependencyNotInstalled(
                'expected pygame for render_mode="human"; pip install "cem-tetris[play]"'
            ) from None
        self._pygame: Any = pygame
        pygame.display.init()
        pygame.display.set_caption(title)
        self._clock = pygame.time.Clock()
        self._screen: Any = None

    def show(self, frame: npt.NDArray[np.uint8], fps: int) -> None:
        """Show a frame, and wait until the frame before it was shown for its time.

        Args:
            frame: Red, green and blue, shape (height, width, 3), uint8.
            fps: Frames a second.
        """
        picture = self._pygame.surfarray.make_surface(frame.swapaxes(0, 1))
        if self._screen is None:
            self._screen = self._pygame.display.set_mode(picture.get_size())
        self._screen.blit(picture, (0, 0))
        self._pygame.event.pump()
        self._pygame.display.flip()
        self._clock.tick(fps)

    def close(self) -> None:
        """Close the window."""
        self._pygame.display.quit()
