"""States of environments: tensors, or any nesting of tensors that is a pytree of PyTorch."""

from numbers import Number
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
    leaves, structure = pytree.tree_flatten(state, is_leaf=_is_leaf)
    tensors = []
    for index, leaf in enumerate(leaves):
        try:
            tensor = torch.as_tensor(as_torch_takes_it(leaf), device=device)
        except (TypeError, ValueError, RuntimeError) as error:
            raise TypeError(
                f"expected a tensor or an array for {_name_leaf(state, index)}, "
                f"got {type(leaf).__name__}"
            ) from error
        if num_envs is not None and (tensor.dim() == 0 or tensor.shape[0] != num_envs):
            raise ValueError(
                f"expected {_name_leaf(state, index)} of shape ({num_envs}, ...), "
                f"got {tuple(tensor.shape)}"
            )
        tensors.append(tensor)
    return State(tensors, structure)


def is_of_numpy(state: Any) -> bool:
    """Return whether a state contains NumPy arrays, and no tensors."""
    if isinstance(state, Tensor):
        return False
    leaves = pytree.tree_leaves(state)
    has_arrays = any(isinstance(leaf, np.ndarray) for leaf in leaves)
    return has_arrays and not any(isinstance(leaf, Tensor) for leaf in leaves)


def _is_leaf(node: Any) -> bool:
    """Return whether a part of a state becomes one tensor, such as a list of numbers."""
    if isinstance(node, list):
        # Lists of tensors or arrays are nestings. Lists of lists of numbers are arrays.
        return all(isinstance(x, Number) for x in pytree.tree_leaves(node))
    has_numbers = type(node) is tuple and all(isinstance(x, Number) for x in node)
    return has_numbers and len(node) > 0


def _name_leaf(state: Any, index: int) -> str:
    """Return the name of a leaf of a state for an error, such as "state['position']"."""
    paths_and_leaves, _ = pytree.tree_flatten_with_path(state, is_leaf=_is_leaf)
    path, _ = paths_and_leaves[index]
    return f"state{pytree.keystr(path)}"
