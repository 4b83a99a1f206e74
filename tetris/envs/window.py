"""The window of ``render_mode="human"``. Needs pygame, which is imported when the window opens."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt


class Window:
    """A window that opens with its first frame, which gives its size."""

    def __init__(self, title: str) -> None:
        """Open no window yet."""
        self._title = title
        self._pygame: Any = None
        self._clock: Any = None

    def show(self, frame: npt.NDArray[np.uint8], fps: int) -> None:
        """Show a frame, uint8 of shape (height, width, 3), once the one before it was shown for its time.

        Raises:
            gymnasium.error.DependencyNotInstalled: If pygame is not installed.
        """
        if self._pygame is None:
            try:
                import pygame
            except ImportError:
                raise gymnasium.error.DependencyNotInstalled(
                    'expected pygame for render_mode="human"; pip install "cem-tetris[play]"'
                ) from None
            pygame.display.init()
            pygame.display.set_caption(self._title)
            pygame.display.set_mode(frame.shape[1::-1])
            self._pygame, self._clock = pygame, pygame.time.Clock()
        display = self._pygame.display
        display.get_surface().blit(self._pygame.surfarray.make_surface(frame.swapaxes(0, 1)), (0, 0))
        self._pygame.event.pump()
        display.flip()
        self._clock.tick(fps)

    def close(self) -> None:
        """Close the window."""
        if self._pygame is not None:
            self._pygame.display.quit()
