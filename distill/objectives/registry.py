"""Every objective that a recipe may name: a function and its source. To add one: a function, and one line in _ALL.

The trainer collects the tensors that the function's parameters name and calls it; the functions know nothing of
models, tokenizers or processes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from msdc.distill.objectives import distilcse, lightweight, multi_stage, retrieval, sbert
from msdc.errors import InputError


@dataclass(frozen=True)
class Objective:
    """A loss function and its contract, most of which its signature states.

    Attributes:
        name: what a recipe writes.
        function: the pure function.
        source: paper and equation.
        preset: arguments that the name stands for.
        equal_widths: whether the student's vectors must have the teacher's width, by a learned map if need be.
        one_side: whether a step that teaches the target side alone computes it too.
        inputs: tensors it cannot do without: parameters without a default.
        optional: tensors it uses where they are given: parameters whose default is None.
        options: what a recipe may set: the other parameters.
    """

    name: str
    function: Callable[..., Tensor]
    source: str
    preset: Mapping[str, Any] = field(default_factory=dict)
    equal_widths: bool = False
    one_side: bool = False
    inputs: tuple[str, ...] = field(init=False)
    optional: tuple[str, ...] = field(init=False)
    options: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        kinds: dict[str, list[str]] = {"inputs": [], "optional": [], "options": []}
        for name, parameter in inspect.signature(self.function).parameters.items():
            if parameter.default is parameter.empty:
                kinds["inputs"].append(name)
            elif parameter.default is None:
                kinds["optional"].append(name)
            elif name not in self.preset:
                kinds["options"].append(name)
        for kind, names in kinds.items():
            object.__setattr__(self, kind, tuple(names))

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Refuse options this objective does not know, before any training.

        Raises:
            InputError: names the unknown option and lists the known ones.
        """
        unknown = sorted(set(options) - set(self.options))
        if unknown:
            known = ", ".join(self.options) or "it has none"
            raise InputError(f"objective {self.name}: unknown option {', '.join(unknown)} (known: {known})")

    def __call__(self, tensors: Mapping[str, Tensor | None], **options: Any) -> Tensor:
        """The loss, from a mapping that holds at least `inputs`; other entries are ignored.

        Raises:
            InputError: an input is missing, an option is unknown, or the function refuses its arguments.
        """
        self.check_options(options)
        missing = [name for name in self.inputs if tensors.get(name) is None]
        if missing:
            raise InputError(f"objective {self.name} needs {', '.join(missing)}, which this stage does not provide")
        given = {name: tensors[name] for name in (*self.inputs, *self.optional) if tensors.get(name) is not None}
        return self.function(**given, **self.preset, **options)


def _plain(
    function: Callable[..., Tensor], source: str, equal_widths: bool = False, one_side: bool = False
) -> Objective:
    return Objective(function.__name__, function, source, equal_widths=equal_widths, one_side=one_side)


def _generative(name: str, task: str, source: str) -> Objective:
    return Objective(name, lightweight.unified_generative, source, preset={"task": task})


DING, GAO, MAO = "Ding et al. 2022", "Gao et al. 2021 (DistilCSE)", "Mao et al. 2021"
SBERT = "Reimers and Gurevych 2019 (Sentence-BERT), section 3"
_ALL = (
    _plain(multi_stage.multilingual_mse, f"{DING}, eq. 2, 4, 6; Reimers and Gurevych 2020", equal_widths=True),
    _plain(multi_stage.embedding_alignment, f"{DING}, eq. 3"),
    _plain(multi_stage.multilingual_contrastive, f"{DING}, eq. 5 (labels: soft), eq. 8 (labels: hard)"),
    _plain(multi_stage.contrastive_cross_entropy, f"{DING}, eq. 9"),
    _plain(distilcse.contrastive_distillation, f"{GAO}, L_CKD", equal_widths=True),
    _plain(distilcse.similarity_distillation, "Fang et al. 2021 (SEED), eq. 3 to 5", equal_widths=True, one_side=True),
    _plain(distilcse.supervised_contrastive, f"{GAO}, L_CL"),
    _plain(distilcse.kd, f"baseline KD of {GAO}", equal_widths=True),
    _plain(distilcse.pkd, f"Sun et al. 2019; baseline PKD of {GAO}"),
    _plain(distilcse.metakd, f"Pan et al. 2020, simplified; baseline MetaKD of {GAO}", equal_widths=True),
    _plain(
        distilcse.domain_adversarial,
        "Ganin and Lempitsky 2015, for the meta-teacher of Pan et al. 2020 (Meta-KD)",
    ),
    _plain(sbert.softmax_classification, f"{SBERT}: classification of NLI pairs"),
    _plain(sbert.cosine_regression, f"{SBERT}: regression on STS-B"),
    _plain(retrieval.guided_contrastive, "Solatorio 2024 (GISTEmbed), eq. 3 to 7"),
    _plain(retrieval.margin_mse, "Hofstaetter et al. 2020, eq. 9"),
    _plain(retrieval.listwise_kl, "Cao et al. 2007 (ListNet); Ren et al. 2021 (RocketQAv2), eq. 5"),
    _plain(lightweight.sentence_alignment, f"{MAO}, eq. 5"),
    _plain(lightweight.sentence_similarity, f"{MAO}, eq. 6"),
    _generative("unified_generative", "ugt", f"{MAO}, eq. 4 (UGT)"),
    _generative("xtr", "xtr", f"{MAO}, eq. 3 (XTR)"),
    _generative("smlm", "smlm", f"{MAO}, eq. 2 (SMLM)"),
    Objective("mlm", lightweight.masked_language_model, f"Devlin et al. 2019; the baseline MLM of {MAO}, table 6"),
)

OBJECTIVES: Mapping[str, Objective] = {objective.name: objective for objective in _ALL}


def find_objective(name: str) -> Objective:
    """The objective of that name; an unknown one is an InputError that lists the known ones."""
    if name not in OBJECTIVES:
        raise InputError(f"unknown objective {name!r}; known: {', '.join(sorted(OBJECTIVES))}")
    return OBJECTIVES[name]
