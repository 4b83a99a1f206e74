"""States of environments: tensors, or any nesting of tensors that is a pytree of PyTorch."""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from cem.core.checks import as_torch_takes_it


class State(NamedTuple):
    """A state as a list of its tensors.

    Attributes:
        leaves: The tensors.
        structure: How they are nested.
    """

    leaves: list[Tensor]
    structure: Any

    def select(self, envs: slice) -> "State":
        """Return the state of a slice of the environments."""
        return State([leaf[envs] for leaf in self.leaves], self.structure)


def read_state(state: Any, num_envs: int | None, device: torch.device) -> State:
    """Convert the leaves of a user's state to tensors on a device.

    Args:
        state: The state. Its leaves are tensors, arrays, numbers or lists of numbers, as for
            ``torch.as_tensor``.
        num_envs: The size of the leading dimension of all leaves. None: it may be any.
        device: The device.

    Raises:
        TypeError: If a leaf cannot be converted to a tensor.
        ValueError: If the leading dimension of a leaf has another size.
    """
    paths_and_leaves, structure = pytree.tree_flatten_with_path(state, is_leaf=_is_leaf)
    leaves = []
    for path, leaf in paths_and_leaves:
        name = f"state{pytree.keystr(path)}"
        tensor = _as_tensor(name, leaf, device)
        if num_envs is not None and (tensor.dim() == 0 or len(tensor) != num_envs):
            expected = f"{name} of shape ({num_envs}, ...)"
            raise ValueError(f"expected {expected}, got {tuple(tensor.shape)}")
        leaves.append(tensor)
    return State(leaves, structure)


def is_of_numpy(state: Any) -> bool:
    """Return whether a state contains NumPy arrays, and no tensors."""
    leaves = pytree.tree_leaves(state)
    has_arrays = any(isinstance(leaf, np.ndarray) for leaf in leaves)
    return has_arrays and not any(isinstance(leaf, Tensor) for leaf in leaves)


def _is_leaf(node: Any) -> bool:
    """Return whether a part of a state becomes one tensor, such as a list of numbers."""
    if isinstance(node, list):
        return True
    has_numbers = type(node) is tuple and all(isinstance(x, (int, float)) for x in node)
    return has_numbers and len(node) > 0


def _as_tensor(name: str, leaf: Any, device: torch.device) -> Tensor:
    try:
        return torch.as_tensor(as_torch_takes_it(leaf), device=device)
    except (TypeError, ValueError, RuntimeError) as error:
        got = type(leaf).__name__
        raise TypeError(f"expected a tensor or an array for {name}, got {got}") from error
