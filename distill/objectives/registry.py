"""Every objective that a recipe may name: a function, the tensors it needs, its source.

To add one: a file with the function, and one record in _ALL.

The trainer collects the tensors an objective's `inputs` name and calls it; the functions know nothing of models,
tokenizers or processes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from msdc.distill.objectives.contrastive.contrastive_cross_entropy import contrastive_cross_entropy
from msdc.distill.objectives.contrastive.contrastive_distillation import contrastive_distillation
from msdc.distill.objectives.contrastive.multilingual_contrastive import multilingual_contrastive
from msdc.distill.objectives.contrastive.similarity_distillation import similarity_distillation
from msdc.distill.objectives.contrastive.supervised_contrastive import supervised_contrastive
from msdc.distill.objectives.embedding_alignment import embedding_alignment
from msdc.distill.objectives.kd import kd
from msdc.distill.objectives.labelled.cosine_regression import cosine_regression
from msdc.distill.objectives.labelled.domain_adversarial import domain_adversarial
from msdc.distill.objectives.labelled.softmax_classification import softmax_classification
from msdc.distill.objectives.masked_language_model import masked_language_model
from msdc.distill.objectives.metakd import metakd
from msdc.distill.objectives.multilingual_mse import multilingual_mse
from msdc.distill.objectives.pkd import pkd
from msdc.distill.objectives.sentence_alignment import sentence_alignment
from msdc.distill.objectives.sentence_similarity import sentence_similarity
from msdc.distill.objectives.unified_generative import unified_generative
from msdc.errors import InputError


@dataclass(frozen=True)
class Objective:
    """A loss function and its contract.

    Attributes:
        name: what a recipe writes.
        function: the pure function.
        inputs: tensors it cannot do without, by the names of its parameters.
        optional: tensors it uses where they are given.
        options: numbers and words a recipe may set.
        preset: options that this name fixes.
        source: paper and equation.
        equal_widths: compares vectors of student and guide number by number: a student of another width is projected.
        one_side: can be computed from the target side alone (`source_share` below 1).
    """

    name: str
    function: Callable[..., Tensor]
    inputs: tuple[str, ...]
    source: str
    optional: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    preset: Mapping[str, Any] = field(default_factory=dict)
    equal_widths: bool = False
    one_side: bool = False

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


_PAIR = ("teacher_source_BD", "student_source_BD", "student_target_BD")
_GENERATIVE = ("logits_BV", "masked_token_B", "masked_here_B", "partner_ids_BT", "partner_mask_BT")
_STATES = ("teacher_states_BLH", "student_states_BLH")


def _generative(name: str, task: str, source: str) -> Objective:
    return Objective(name, unified_generative, _GENERATIVE, source, preset={"task": task})


_ALL = (
    Objective(
        "multilingual_mse",
        multilingual_mse,
        _PAIR,
        "Ding et al. 2022, eq. 2, 4, 6; Reimers and Gurevych 2020",
        optional=("teacher_target_BD",),
        options=("reduction",),
        equal_widths=True,
    ),
    Objective(
        "embedding_alignment",
        embedding_alignment,
        ("guide_BTH", "student_BTH", "mask_BT"),
        "Ding et al. 2022, eq. 3",
        options=("pooled",),
    ),
    Objective(
        "multilingual_contrastive",
        multilingual_contrastive,
        _PAIR,
        "Ding et al. 2022, eq. 5 (labels: soft), eq. 8 (labels: hard)",
        optional=("sentence_B",),
        options=("labels",),
    ),
    Objective(
        "contrastive_cross_entropy",
        contrastive_cross_entropy,
        _PAIR,
        "Ding et al. 2022, eq. 9",
        options=("temperature", "reduction"),
    ),
    Objective(
        "contrastive_distillation",
        contrastive_distillation,
        ("student_BD", "teacher_BD", "bank_KD"),
        "Gao et al. 2021 (DistilCSE), L_CKD",
        options=("temperature",),
        equal_widths=True,
    ),
    Objective(
        "similarity_distillation",
        similarity_distillation,
        ("teacher_source_BD", "student_target_BD", "bank_KD"),
        "Fang et al. 2021 (SEED), eq. 3 to 5",
        optional=("student_source_BD",),
        options=("temperature",),
        equal_widths=True,
        one_side=True,
    ),
    Objective(
        "supervised_contrastive",
        supervised_contrastive,
        ("anchor_BD", "positive_BD", "negative_BD"),
        "Gao et al. 2021 (DistilCSE), L_CL",
        options=("temperature",),
    ),
    Objective(
        "kd",
        kd,
        ("teacher_BD", "student_BD"),
        "baseline KD of Gao et al. 2021 (DistilCSE)",
        options=("reduction",),
        equal_widths=True,
    ),
    Objective("pkd", pkd, _STATES, "Sun et al. 2019; baseline PKD of Gao et al. 2021 (DistilCSE)"),
    Objective(
        "metakd",
        metakd,
        ("teacher_BD", "student_BD", "domain_B", "prototypes_PD"),
        "Pan et al. 2020, simplified; baseline MetaKD of Gao et al. 2021 (DistilCSE)",
        optional=_STATES,
        options=("own_share",),
        equal_widths=True,
    ),
    Objective(
        "softmax_classification",
        softmax_classification,
        ("source_BD", "target_BD", "classifier_CF", "bias_C", "label_B"),
        "Reimers and Gurevych 2019 (Sentence-BERT), section 3: classification of NLI pairs",
    ),
    Objective(
        "cosine_regression",
        cosine_regression,
        ("source_BD", "target_BD", "score_B"),
        "Reimers and Gurevych 2019 (Sentence-BERT), section 3: regression on STS-B",
    ),
    Objective(
        "domain_adversarial",
        domain_adversarial,
        ("source_BD", "domains_PD", "bias_P", "domain_B"),
        "Ganin and Lempitsky 2015, for the meta-teacher of Pan et al. 2020 (Meta-KD)",
    ),
    Objective(
        "sentence_alignment",
        sentence_alignment,
        ("source_BD", "target_BD"),
        "Mao et al. 2021, eq. 5",
        options=("reduction",),
    ),
    Objective(
        "sentence_similarity",
        sentence_similarity,
        ("source_BD", "target_BD"),
        "Mao et al. 2021, eq. 6",
        options=("reduction",),
    ),
    _generative("unified_generative", "ugt", "Mao et al. 2021, eq. 4 (UGT)"),
    _generative("xtr", "xtr", "Mao et al. 2021, eq. 3 (XTR)"),
    _generative("smlm", "smlm", "Mao et al. 2021, eq. 2 (SMLM)"),
    Objective(
        "mlm",
        masked_language_model,
        ("token_logits_MV", "masked_ids_M"),
        "Devlin et al. 2019; the baseline MLM of Mao et al. 2021, table 6",
    ),
)

OBJECTIVES: Mapping[str, Objective] = {objective.name: objective for objective in _ALL}


def find_objective(name: str) -> Objective:
    """The objective of that name.

    Raises:
        InputError: unknown; the message lists the known ones.
    """
    if name not in OBJECTIVES:
        raise InputError(f"unknown objective {name!r}; known: {', '.join(sorted(OBJECTIVES))}")
    return OBJECTIVES[name]
