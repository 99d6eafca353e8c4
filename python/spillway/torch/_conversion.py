"""How transformers names and lays out weights in files, against the parameters of its modules (fused experts, renamed submodules, tied
weights, adapters). Its own rules are applied, to a few tensors at a time."""

from __future__ import annotations

import copy

import torch

TYPE_CHECKING = False  # type checkers take it as True; at run time, not importing typing saves time
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator, Mapping, Optional, Sequence

    from ._safetensors import Stored

    Rename = Callable[[str], str]


class Conversion:
    """What becomes of one or several stored tensors: one or several tensors under other names. `sources` are the names of the former.
    Without a `converter` the values stay as they are."""

    def __init__(self, model: Any, target: str, converter: Any = None, rename: Optional[Rename] = None) -> None:
        self._model, self._target, self._converter, self._rename = model, target, converter, rename
        self._members: list[tuple[str, str]] = []  # names, and the pattern of the converter that each matches

    @property
    def sources(self) -> list[str]:
        return [name for name, pattern in self._members]

    @property
    def changes_values(self) -> bool:
        return self._converter is not None

    def add(self, name: str, pattern: Optional[str]) -> None:
        self._members.append((name, pattern or name))

    def made(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Converts whole tensors."""
        if self._converter is None:
            return {self._target: tensors[self._members[0][0]]}
        return self._convert([(name, pattern, tensors[name]) for name, pattern in self._members])

    def shapes(self, stored: Mapping[str, Stored]) -> dict[str, tuple[torch.dtype, tuple[int, ...]]]:
        """Returns the types and shapes of what is made, without reading values."""
        made = self.made({name: torch.empty(stored[name].shape, dtype=stored[name].dtype, device="meta") for name in self.sources})
        return {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in made.items()}

    def parts(self) -> Optional[str]:
        """Returns "merge" if the converter stacks tensors on a new first axis, "split" if it takes such a stack apart, and does to each
        tensor of the stack the same: then tensors can be converted one at a time. Else None."""
        operations = list(getattr(self._converter, "operations", ()))
        kinds = [type(one).__name__ for one in operations]
        if kinds[:1] == ["MergeModulelist"] and operations[0].dim == 0 and all(map(_within_rows, operations[1:])):
            return "merge"
        if kinds[-1:] == ["SplitModulelist"] and operations[-1].dim == 0 and all(map(_within_rows, operations[:-1])):
            return "split"
        return None

    def merged(self, stored: Mapping[str, Stored], begin: int, end: int) -> dict[str, torch.Tensor]:
        """Converts to the rows [begin, end) of the first axis, if parts() is "merge"."""
        of_pattern: dict[str, list[str]] = {}
        for name, pattern in self._members:
            of_pattern.setdefault(pattern, []).append(name)
        return self._convert([(name, pattern, stored[name].whole()) for pattern, names in of_pattern.items() for name in names[begin:end]])

    def split(self, stored: Mapping[str, Stored]) -> Iterator[dict[str, torch.Tensor]]:
        """Yields what is made of each row of the first axis, if parts() is "split"."""
        names = list(self.shapes(stored))
        rows = stored[self._members[0][0]].shape[0]
        for row in range(rows):
            made = self._convert([(name, pattern, stored[name].rows(row, row + 1)) for name, pattern in self._members])
            # All tensors of one kind come first, in order, then those of the next kind.
            yield {names[kind * rows + row]: tensor for kind, tensor in enumerate(made.values())}

    def _convert(self, members: Sequence[tuple[str, str, torch.Tensor]]) -> dict[str, torch.Tensor]:
        converter = copy.deepcopy(self._converter)
        for name, pattern, tensor in members:
            converter.add_tensor(self._target, name, pattern, tensor)
        made = converter.convert(self._target, model=self._model, config=self._model.config)
        rename = self._rename or (lambda name: name)
        return {rename(name): tensor[0] if isinstance(tensor, list) else tensor for name, tensor in made.items()}


def _within_rows(operation: Any) -> bool:
    """Whether an operation leaves the first axis of a stack of three-dimensional tensors alone."""
    axes = [getattr(operation, name) for name in ("dim", "dim0", "dim1") if hasattr(operation, name)]
    known = type(operation).__name__ in ("Concatenate", "Chunk", "Transpose", "Interleave")
    return known and bool(axes) and all(axis > 0 or axis in (-1, -2) for axis in axes)


def _rules(model: Any) -> Any:
    """Returns transformers' module of conversion rules if `model` is one of its models. Versions before 5 have none: names in files are
    those of the module."""
    try:
        from transformers import PreTrainedModel, conversion_mapping, core_model_loading
    except ImportError:
        return None
    return (core_model_loading, conversion_mapping) if isinstance(model, PreTrainedModel) else None


def _by_kind(rules: Any, conversions: Sequence[Any]) -> tuple[list[Any], list[Any], dict[str, Any]]:
    converters = [one for one in conversions if isinstance(one, rules.WeightConverter)]
    renamings = [one for one in conversions if isinstance(one, rules.WeightRenaming)]
    return renamings, converters, {pattern: one for one in converters for pattern in one.source_patterns}


def saved(model: Any, names: Sequence[str]) -> list[Conversion]:
    """Returns how model.save_pretrained() would convert the parameters `names` to tensors in files. Follows
    transformers.core_model_loading.revert_weight_conversion, which needs all tensors at once."""
    rules = _rules(model)
    if rules is None:
        return _unchanged(model, names)
    loading, mapping = rules
    conversions = getattr(model, "_weight_conversions", None)
    if conversions is None:
        conversions = mapping.get_model_conversion_mapping(model, add_legacy=False)
        conversions = [one for one in conversions if not isinstance(one, loading.PrefixChange)]
    renamings, converters, of_pattern = _by_kind(loading, [one.reverse_transform() for one in conversions[::-1]])

    def rename(name: str) -> str:
        return loading.apply_renamings(name, renamings)

    made: dict[str, Conversion] = {}
    for name in sorted(names, key=loading.dot_natural_key):
        target, pattern = loading.apply_converters(name, converters)
        target = rename(name) if pattern is None else target
        made.setdefault(target, Conversion(model, target, of_pattern.get(pattern), rename)).add(name, pattern)
    return list(made.values())


def loaded(model: Any, names: Sequence[str]) -> list[Conversion]:
    """Returns how from_pretrained() would convert the tensors `names` of files to parameters of `model`. Follows
    transformers.core_model_loading.convert_and_load_state_dict_in_model, which fills whole modules."""
    rules = _rules(model)
    if rules is None:
        return _unchanged(model, names)
    loading, mapping = rules
    renamings, converters, of_pattern = _by_kind(loading, mapping.get_model_conversion_mapping(model))
    own, prefix = model.state_dict(), model.base_model_prefix
    made: dict[str, Conversion] = {}
    for name in sorted(names, key=loading.dot_natural_key):
        target, pattern = loading.rename_source_key(name, renamings, converters, prefix, own)
        if target not in own and name in own:
            target, pattern = loading.rename_source_key(name, [], [], base_model_prefix=prefix, meta_state_dict=own)
        if target in own:
            made.setdefault(target, Conversion(model, target, of_pattern.get(pattern))).add(name, pattern)
    return list(made.values())


def _unchanged(model: Any, names: Sequence[str]) -> list[Conversion]:
    conversions = [Conversion(model, name) for name in names]
    for name, conversion in zip(names, conversions):
        conversion.add(name, None)
    return conversions


def tied(model: torch.nn.Module) -> dict[str, str]:
    """Returns, for each name of a parameter that transformers does not save because it is another's second name, the name that is saved."""
    second = getattr(model, "all_tied_weights_keys", None) or {}
    groups: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        groups.setdefault(id(parameter), []).append(name)
    found = dict(second) if isinstance(second, dict) else {}
    for names in groups.values():
        first = next((name for name in names if name not in second), names[0])
        found.update({name: first for name in names if name != first})
    return found


def is_adapted(model: Any) -> bool:
    """Whether the model has adapters of PEFT, either around it or within a transformers model (add_adapter)."""
    return hasattr(model, "peft_config") and (hasattr(model, "get_base_model") or getattr(model, "_hf_peft_config_loaded", False))


def adapters(model: Any, names: Sequence[str]) -> list[Conversion]:
    """Returns how PEFT would name the active adapter's parameters in its file."""
    from ..errors import UsageError

    active = model.active_adapters if hasattr(model, "get_base_model") else model.active_adapters()
    if len(active) != 1:
        raise UsageError(f"model: expected one active adapter, got {', '.join(active) or 'none'}: choose it with set_adapter()")
    empty = {name: torch.empty(0, device="meta") for name in names}
    if hasattr(model, "get_base_model"):
        from peft import get_peft_model_state_dict

        kept = get_peft_model_state_dict(model, state_dict=empty, adapter_name=active[0])
    else:
        kept = {f"base_model.model.{name}": value for name, value in model.get_adapter_state_dict(active[0], state_dict=empty).items()}
    names_of = {id(tensor): name for name, tensor in empty.items()}
    conversions = []
    for target, tensor in kept.items():
        conversions.append(Conversion(model, target))
        conversions[-1].add(names_of[id(tensor)], None)
    return conversions
