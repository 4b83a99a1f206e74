"""The window of ``render_mode="human"``. Needs pygame, which is imported when the window opens."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt


class Window:
    """A window that shows frames."""

    def __init__(self, title: str) -> None:
        """Open no window yet: the first frame gives its size."""
        self._title = title
        self._pygame: Any = None
        self._clock: Any = None
        self._screen: Any = None

    def show(self, frame: npt.NDArray[np.uint8], fps: int) -> None:
        """Show a frame, and wait until the frame before it was shown for its time.

        Args:
            frame: Red, green and blue, shape (height, width, 3), uint8.
            fps: Frames a second.

        Raises:
            gymnasium.error.DependencyNotInstalled: If pygame is not installed.
        """
        if self._pygame is None:
            self._open(frame.shape[1::-1])
        picture = self._pygame.surfarray.make_surface(frame.swapaxes(0, 1))
        self._screen.blit(picture, (0, 0))
        self._pygame.event.pump()
        self._pygame.display.flip()
        self._clock.tick(fps)

    def close(self) -> None:
        """Close the window."""
        if self._pygame is not None:
            self._pygame.display.quit()

    def _open(self, size: tuple[int, ...]) -> None:
        try:
            import pygame
        except ImportError:
            raise gymnasium.error.DependencyNotInstalled(
                'expected pygame for render_mode="human"; pip install "cem-tetris[play]"'
            ) from None
        pygame.display.init()
        pygame.display.set_caption(self._title)
        self._pygame, self._clock, self._screen = pygame, pygame.time.Clock(), pygame.display.set_mode(size)
